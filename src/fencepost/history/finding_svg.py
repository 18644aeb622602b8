"""Draws findings as an SVG picture: the lanes of the text drawing, with the names of the operations."""

from collections.abc import Iterable, Iterator
from html import escape

from fencepost.history.finding_text import describe, lanes, letters, places
from fencepost.history.findings import Finding
from fencepost.history.operations import NEVER, Operation, Outcome

FINDINGS_MAX = 50
WIDTH_MIN = 900
CHARACTER_WIDTH = 7.3
LEFT = 150
RIGHT = 60
LANE_HEIGHT = 34
LINE_HEIGHT = 18
GAP = 36
COLOURS = {Outcome.OK: "#2a7d4f", Outcome.FAIL: "#b3362b", Outcome.INFO: "#b07d12"}
STYLE = (
    "text{font:13px ui-sans-serif,system-ui,sans-serif;fill:#1c1f23}.title{font-weight:600;font-size:15px}"
    ".small{font:12px ui-monospace,monospace;fill:#4a5058}.lane{stroke:#d8dce0;stroke-width:1}"
    ".letter{font-weight:600;fill:#fff}"
)


def draw_svg(findings: Iterable[Finding]) -> str:
    shown = list(findings)[:FINDINGS_MAX]
    width = max([WIDTH_MIN, *map(_width, shown)])
    body: list[str] = []
    top = 20
    for finding in shown:
        body += _finding(finding, top, width)
        top += _height(finding) + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" viewBox="0 0 {width} {top}">'
        f"<style>{STYLE}</style>"
        f'<rect width="{width}" height="{top}" fill="#ffffff"/>' + "".join(body) + "</svg>\n"
    )


def _width(finding: Finding) -> int:
    """Room for the longest line."""
    lines = [finding.message, *(describe(each, finding) for each in finding.operations)]
    return int(max(map(len, lines)) * CHARACTER_WIDTH) + 80


def _height(finding: Finding) -> int:
    return 2 * LINE_HEIGHT + len(lanes(finding)) * LANE_HEIGHT + 10 + len(finding.operations) * LINE_HEIGHT


def _finding(finding: Finding, top: int, width: int) -> Iterator[str]:
    yield _text(20, top + 14, finding.anomaly, "title")
    yield _text(20, top + 14 + LINE_HEIGHT, finding.message)
    shown = places(finding)
    step = (width - LEFT - RIGHT) / max(len(shown), 1)
    columns = {place: LEFT + index * step for index, place in enumerate(shown)}
    y = top + 2 * LINE_HEIGHT + LANE_HEIGHT / 2
    for process, operations in lanes(finding).items():
        yield _text(20, y + 4, process)
        yield f'<line class="lane" x1="{LEFT}" y1="{y}" x2="{width - 20}" y2="{y}"/>'
        for letter, operation in operations:
            yield from _operation(operation, letter, columns, y, width)
        y += LANE_HEIGHT
    y += 10 - LANE_HEIGHT / 2 + 8
    for letter, operation in zip(letters(finding), finding.operations, strict=True):
        yield _text(20, y, f"{letter}  {describe(operation, finding)}", "small")
        y += LINE_HEIGHT


def _operation(operation: Operation, letter: str, columns: dict[int, float], y: float, width: int) -> Iterator[str]:
    colour = COLOURS[operation.outcome]
    is_open = operation.completed == NEVER
    start = columns[operation.invoked]
    end = width - 24 if is_open else columns[operation.completed]
    dashes = ' stroke-dasharray="5 4"' if operation.outcome is Outcome.INFO else ""
    yield (
        f'<rect x="{start:.0f}" y="{y - 10}" width="{max(end - start, 22):.0f}" height="20" rx="5" fill="{colour}" '
        f'fill-opacity="0.18" stroke="{colour}"{dashes}><title>{escape(describe(operation))}</title></rect>'
        f'<rect x="{start:.0f}" y="{y - 10}" width="20" height="20" rx="5" fill="{colour}"/>'
    )
    yield _text(start + 5, y + 4, letter, "letter")
    if operation.ending != NEVER:
        x = columns[operation.ending]
        asked = "commit asked" if operation.commit_asked else "abort asked"
        fill = colour if operation.commit_asked else "#ffffff"
        yield (
            f'<circle cx="{x:.0f}" cy="{y}" r="5" fill="{fill}" stroke="{colour}" stroke-width="2">'
            f"<title>{asked}</title></circle>"
        )
    if not is_open:
        yield _text(end + 4, y + 4, operation.outcome.value, "small")


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    given = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{given}>{escape(text, quote=False)}</text>'
