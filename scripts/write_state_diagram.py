"""Draw the diagram and the table in docs/transaction-states.md from the transitions that the coordinator runs on.

python scripts/write_state_diagram.py
"""

from pathlib import Path

from fencepost.coordinators.transactions.transaction_states import AT_REST, PERSISTED, TRANSITIONS, TransactionState

DOCUMENT = Path(__file__).parent.parent / "docs" / "transaction-states.md"
BEGIN, END = "<!-- states: written by scripts/write_state_diagram.py -->", "<!-- end of states -->"


def diagram() -> list[str]:
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> Empty: InitProducerId of a new id"]
    for current in TransactionState:
        for target, sources in TRANSITIONS.items():
            if current in sources:
                lines.append(f"    {current.wire_name} --> {target.wire_name}: {sources[current]}")
    return [*lines, "    Dead --> [*]: tombstone", "```"]


def table() -> list[str]:
    lines = ["| id | state | in the log | may expire | follows |", "|---|---|---|---|---|"]
    for state in TransactionState:
        follows = ", ".join(before.wire_name for before in sorted(TRANSITIONS[state]))
        in_log = "yes" if state in PERSISTED else "no"
        may_expire = "yes" if state in AT_REST else "no"
        lines.append(f"| {state.value} | {state.wire_name} | {in_log} | {may_expire} | {follows} |")
    return lines


def updated(document: str) -> str:
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    drawn = "\n".join(["", *diagram(), "", *table(), "", ""])
    return f"{before}{BEGIN}\n{drawn}{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(updated(DOCUMENT.read_text()))
