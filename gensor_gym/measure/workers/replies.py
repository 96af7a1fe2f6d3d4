"""Encodes a worker's answers as plain values and decodes them. An invalid answer is a BadReply.

A kernel under trial runs in the worker's process and may write anything into the pipe. So an answer is numbers and text that are
checked one by one; nothing is run, opened or loaded before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.workers.requests import Built, CompareRequest, CompileRequest, TrialRequest
from gensor_gym.measure.workers.wire import BadReply

MOST_SAMPLES = 1 << 20
MOST_TEXT = 1 << 16
"""Largest number of characters of a compiler's log, an error message or a traceback. Of a longer text the end is kept."""
_PLAIN = (str, int, float, bool, type(None))


def encoded(answer: object) -> object:
    """Convert a worker's answer to values that JSON supports: the fields of a Measurement or a Built as a dictionary.

    Long texts are cut to their last `MOST_TEXT` characters. The samples of a comparison stay unchanged.
    """
    if isinstance(answer, Measurement):
        fields = {name: getattr(answer, name) for name in ("samples", "conditions", "digest")}
        return {**fields, "status": answer.status.value, "error": answer.error[:MOST_TEXT]}
    if isinstance(answer, Built):
        return {name: getattr(answer, name) for name in ("path", "compiler", "compile_seconds")}
    return answer[-MOST_TEXT:] if isinstance(answer, str) else answer


def decoded(request: object, value: Any) -> Any:
    """Decode the answer to a request from its JSON form; BadReply if it is invalid."""
    decode = next((known for kind, known in _DECODERS.items() if isinstance(request, kind)), None)
    if decode is None:
        raise BadReply(f"an answer to a {type(request).__name__}")
    try:
        return decode(request, value)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadReply(f"answer to a {type(request).__name__}: {type(error).__name__}: {error}") from None


def text(value: Any) -> str:
    """Return a text, cut to its last `MOST_TEXT` characters. BadReply if the value is no text."""
    if not isinstance(value, str):
        raise BadReply(f"a {type(value).__name__} where a text is expected")
    return value[-MOST_TEXT:]


def _measurement(request: TrialRequest, value: Any) -> Measurement:
    """Decode a measurement. Its digest is taken from the request, because the worker's may be wrong."""
    conditions = {text(name): _condition(item) for name, item in value["conditions"].items()}
    status, digest = Status(value["status"]), request.built.kernel.digest
    return Measurement(status, tuple(_samples(value["samples"])), conditions, text(value["error"]), digest)


def _condition(value: Any) -> object:
    """Return a condition's value: a text, a number, or a list of both. ValueError for anything else."""
    items = value if isinstance(value, list) else [value]
    if len(items) > MOST_SAMPLES or not all(isinstance(item, _PLAIN) for item in items):
        raise ValueError(f"a condition that is a {type(value).__name__}, expected text or numbers")
    return value


def _samples(values: Any) -> list[float]:
    """Return the values as a list of seconds. ValueError unless they are a list of at most `MOST_SAMPLES` numbers."""
    if not isinstance(values, list) or len(values) > MOST_SAMPLES:
        raise ValueError(f"a {type(values).__name__} where at most {MOST_SAMPLES} seconds are expected")
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        raise ValueError("samples that are no numbers")
    return [float(value) for value in values]


def _comparison(request: CompareRequest, value: Any) -> dict[str, list[float]]:
    return {text(name): _samples(samples) for name, samples in value.items()}


def _compiled(request: CompileRequest, value: Any) -> Built | str:
    if isinstance(value, str):
        return text(value)
    seconds = _samples([value["compile_seconds"]])[0]
    return replace(Built(request.kernel, ""), path=text(value["path"]), compiler=text(value["compiler"]), compile_seconds=seconds)


_DECODERS: dict[type, Callable[[Any, Any], Any]] = {
    TrialRequest: _measurement, CompareRequest: _comparison, CompileRequest: _compiled,
}  # fmt: skip
