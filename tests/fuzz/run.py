"""One fuzzing target under atheris: `python -m tests.fuzz.run TARGET [libFuzzer's options and corpora]`."""

import importlib
import sys

import atheris


def main() -> None:
    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["fencepost"]):
        target = importlib.import_module(f"tests.fuzz.{name}")
    options = {}
    if hasattr(target, "mutate"):
        options["custom_mutator"] = lambda data, size_max, seed: target.mutate(data, seed, atheris.Mutate)[:size_max]
    atheris.Setup(sys.argv, target.run, **options)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
