"""The calls of the PPO example in stable-baselines3's documentation; only the environment's id differs.

The id has the form `module:id`: Gymnasium first imports the module, which registers the id. The policy here ignores masks.
"""

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

vec_env = make_vec_env("gensor_gym:gensor_gym/Construct-v0", n_envs=4)

model = PPO("MlpPolicy", vec_env, verbose=1)
model.learn(total_timesteps=25_000)
model.save("ppo_construct")

model = PPO.load("ppo_construct")
observations = vec_env.reset()
for _ in range(200):
    actions, _ = model.predict(observations)
    observations, rewards, dones, infos = vec_env.step(actions)
    for info in infos:
        if "episode" in info:  # from the Monitor that make_vec_env puts around every environment
            print(f"return {info['episode']['r']:.2f}, {info['runtime_s'] * 1e6:.1f} us by the model, {info['steps']} steps")
