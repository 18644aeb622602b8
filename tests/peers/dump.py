"""Apache Kafka's dump tool over a whole data directory, and what it complains of."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.peers import java

TOOL = "org.apache.kafka.tools.DumpLogSegments"
# A batch that fails its CRC is printed with `isvalid: false`; the rest are the tool's own words for trouble.
COMPLAINT = re.compile(
    r"mismatch|isvalid: false|non-consecutive|misplaced|corrupt|out of order|exception|\berror\b|failed|could not"
    r"|truncat|unknown|ignored|invalid|not found",
    re.IGNORECASE,
)
BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*")
COMPACTED = "/compacted-"
# Headings that indented lines follow, one for each place.
LISTS = (
    "Non-consecutive offsets in",
    "Found timestamp mismatch in",
    "Mismatches in",
    "Found out of order timestamp in",
    "The following indexed offsets are not found in",
)
HEADING = re.compile(r"^Dumping (.+)$")


@dataclass(frozen=True, slots=True)
class Dump:
    """What the tool printed of a set of files."""

    text: str
    by_file: dict[str, list[str]]

    def record_count(self, file: Path) -> int:
        found = (BATCH.match(line) for line in self.by_file[str(file)])
        return sum(int(match[3]) for match in found if match)

    def complaints(self) -> list[str]:
        """What the tool finds wrong, less what it says of every log, Apache Kafka's own included."""
        found: list[str] = []
        heading = ""
        for line in self.text.splitlines():
            if line.startswith("  "):
                if heading and not _is_usual(heading, line):
                    found.append(f"{heading}:{line}")
                continue
            heading = line if line.startswith(LISTS) else ""
            if not heading and COMPLAINT.search(line):
                found.append(line)
        return found


def _is_usual(heading: str, detail: str) -> bool:
    if heading.startswith("Non-consecutive"):
        # The tool of 4.3 misses the offset before a segment's first; compaction leaves gaps.
        return detail.startswith("  -1 is followed by") or COMPACTED in heading
    # A batch emptied by compaction, kept for its producer's sequence, has no timestamp.
    return COMPACTED in heading and detail.endswith("log timestamp: -1")


def dump(files: list[Path], *arguments: str) -> Dump:
    """One run of the tool over all the files, which takes no longer than one over a single file."""
    # A tool that dies prints an exception, which is a complaint like others.
    text = java.run(TOOL, "--files", ",".join(str(file) for file in files), *arguments, check=False)
    assert "Dumping " in text, text
    by_file: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        heading = HEADING.match(line)
        if heading:
            lines = by_file.setdefault(heading[1], [])
        else:
            lines.append(line)
    return Dump(text, by_file)


def files_of(directory: Path, *suffixes: str) -> list[Path]:
    """The files of the partitions under a data directory, in order; those on their way out are left alone."""
    return sorted(
        file
        for suffix in suffixes
        for file in directory.glob(f"*/*{suffix}")
        if re.search(r"-\d+$", file.parent.name) and not file.parent.name.startswith("__cluster_metadata")
    )
