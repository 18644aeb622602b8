"""Cycles of transactions that read each other's values (G1c), by write-read edges only.

A poll depends on the writer of the highest offset it returned of each partition: earlier records may be
there for other reasons. There are no write-write edges, because Kafka's transactions interleave their writes freely.
"""

from collections import deque

from fencepost.history.evidence import Evidence
from fencepost.history.findings import Findings
from fencepost.history.operations import READ_COMMITTED, Operation

Graph = dict[int, dict[int, Operation]]
"""By an operation's number, the operations that read from it."""


def check_cycles(evidence: Evidence, findings: Findings) -> None:
    graph = _write_read_edges(evidence)
    operations = evidence.history.operations
    for component in _strong_components(graph):
        cycle = [operations[number] for number in _shortest_cycle(graph, component)]
        names = " -> ".join(f"{each.process} (operation {each.number})" for each in [*cycle, cycle[0]])
        findings.add("write-read-cycle", f"each read from the one before: {names}", *cycle)


def _write_read_edges(evidence: Evidence) -> Graph:
    graph: Graph = {}
    for _, reader, poll in evidence.history.polls:
        if not reader.sends or reader.isolation != READ_COMMITTED:
            continue
        for name, pairs in poll.items():
            if not pairs:
                continue
            entry = evidence.partitions[name].entries[max(int(offset) for offset, _ in pairs)]
            if entry.send is None:
                continue
            writer = entry.send.operation
            if writer is not reader and writer.polls:
                graph.setdefault(writer.number, {})[reader.number] = reader
    return graph


def _strong_components(graph: Graph) -> list[list[int]]:
    """Tarjan's algorithm without recursion; only components of more than one."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []
    for root in graph:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(graph[root]))]
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    on_stack.add(successor)
                    work.append((successor, iter(graph.get(successor, ()))))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    if len(component) > 1:
                        found.append(component)
    return found


def _shortest_cycle(graph: Graph, component: list[int]) -> list[int]:
    """A shortest one through the first member: breadth first, within the component."""
    members = set(component)
    start = min(component)
    came_from: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for successor in graph.get(node, ()):
            if successor == start:
                path = [node]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if successor in members and successor not in came_from:
                came_from[successor] = node
                queue.append(successor)
    raise AssertionError("a strong component has a cycle through each member")
