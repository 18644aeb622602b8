"""Write the tables of settings in docs/configuration.md from the declarations in config.py.

python scripts/write_settings_doc.py
"""

from collections.abc import Mapping
from pathlib import Path

from fencepost.config import BROKER_DEFAULT_OF, broker_settings, topic_settings
from fencepost.settings import INT_MAX, LONG_MAX, Setting

DOCUMENT = Path(__file__).parent.parent / "docs" / "configuration.md"
BEGIN, END = "<!-- settings: written by scripts/write_settings_doc.py -->", "<!-- end of settings -->"


def default_text(setting: Setting) -> str:
    if setting.default in (LONG_MAX, INT_MAX):
        return "no limit"
    text = setting.render(setting.default)
    return f"`{text}`" if text else ""


def allowed_text(setting: Setting) -> str:
    if setting.served is not None:
        return ", ".join(f"`{setting.render(value)}`" for value in setting.served)
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    low = "" if setting.minimum is None else f"≥ {setting.minimum:,.0f}"
    high = "" if setting.maximum is None else f"≤ {setting.maximum:,.0f}"
    also = "".join(f", or {number}" for number in setting.also)
    return " ".join(part for part in (low, high) if part) + also


def table(settings: Mapping[str, Setting]) -> list[str]:
    lines = ["| name | type | default | allowed | |", "|---|---|---|---|---|"]
    for name, setting in settings.items():
        note = setting.documentation
        if setting.dynamic:
            note += " Can be altered while running."
        lines.append(f"| `{name}` | {setting.kind} | {default_text(setting)} | {allowed_text(setting)} | {note} |")
    return lines


def tables() -> str:
    lines = ["", "### Broker", "", *table(broker_settings()), "", "### Topics", ""]
    lines += table(topic_settings())
    lines += ["", "A topic setting that is not set takes its default from the broker:", ""]
    lines += ["| topic | broker |", "|---|---|"]
    lines += [f"| `{topic}` | `{broker}` |" for topic, broker in BROKER_DEFAULT_OF.items()]
    return "\n".join([*lines, ""])


def updated(document: str) -> str:
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(updated(DOCUMENT.read_text()))
