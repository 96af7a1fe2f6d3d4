/* Preloaded into a process, it hides AVX-512, AMX and AVX-VNNI from libraries, so that they run their code for AVX2.
 *
 * The instruction cpuid then faults (Linux on x86-64: arch_prctl with ARCH_SET_CPUID, see "man 2 arch_prctl"), and the handler of
 * the fault answers without the bits of these instructions. Bits are those of the Intel Software Developer's Manual, volume 2,
 * table 3-8, leaf 7. Programs that the process starts inherit $LD_PRELOAD, for example compilers with -march=native. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define BIT(n) (1u << (n))

static int begun;

static long answer(unsigned long by_processor) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, by_processor); }

static void on_fault(int number, siginfo_t *info, void *context) {
    greg_t *const r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *const at = (const unsigned char *)r[REG_RIP];
    uint32_t a = (uint32_t)r[REG_RAX], b, c = (uint32_t)r[REG_RCX], d;
    const uint32_t leaf = a, part = c;
    (void)info;
    if (at[0] != 0x0f || at[1] != 0xa2) { /* not cpuid: a real fault, which happens again without this handler */
        begun = 0;
        signal(number, SIG_DFL);
        return;
    }
    answer(1);
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    answer(0);
    if (leaf == 7 && part == 0) {
        b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31)); /* AVX-512 F, DQ, IFMA .. VL */
        c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14)); /* VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ */
        d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25)); /* 4VNNIW .. VP2INTERSECT, AMX, FP16 */
    }
    if (leaf == 7 && part == 1) a &= ~(BIT(4) | BIT(5) | BIT(21)); /* AVX-VNNI, AVX512-BF16, AMX-FP16 */
    r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d, r[REG_RIP] += 2;
}

/* Nobody replaces the handler, as gcc and Python's faulthandler would. */
int sigaction(int number, const struct sigaction *next, struct sigaction *last) {
    int (*const real)(int, const struct sigaction *, struct sigaction *) = dlsym(RTLD_NEXT, "sigaction");
    return real(number, begun && number == SIGSEGV ? 0 : next, last);
}

__sighandler_t signal(int number, __sighandler_t next) {
    struct sigaction one, last;
    memset(&one, 0, sizeof one);
    one.sa_handler = next, one.sa_flags = SA_RESTART;
    return sigaction(number, &one, &last) ? SIG_ERR : last.sa_handler;
}

__attribute__((constructor)) static void begin(void) {
    static const char text[] = "this system does not let a process hide instructions (arch_prctl, ARCH_SET_CPUID)\n";
    struct sigaction one;
    memset(&one, 0, sizeof one);
    one.sa_sigaction = on_fault, one.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    if (sigaction(SIGSEGV, &one, 0) || answer(0)) {
        if (write(2, text, sizeof text - 1)) _exit(1);
        _exit(1);
    }
    begun = 1;
}
