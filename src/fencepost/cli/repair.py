"""`fencepost repair`: shows what a stopped data directory has lost, and can give it up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.dump import FOUND
from fencepost.cli.options import Json
from fencepost.cli.output import CommandFailed, print_json, say
from fencepost.internal_topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from fencepost.terminal_text import shell_word

if TYPE_CHECKING:
    from fencepost.broker.directory_repair import (
        DamagedPartition,
        DirectoryRepair,
        HangingTransaction,
        RebuiltMetadata,
        Survey,
    )
    from fencepost.log.repair import Loss

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

EPILOG = """\
\b
Examples:
  fencepost repair --data ./data                               show what is lost; changes nothing
  fencepost repair --data ./data --accept-loss purchases-0     continue without what that partition has lost
  fencepost repair --data ./data --accept-loss __cluster_metadata-0

A partition whose files are missing, or whose synced bytes have changed, is not served: every request for it fails
with KAFKA_STORAGE_ERROR. Restore the files from a backup if you have one. If not, --accept-loss repairs the log without
them. Lost offsets stay empty and are never given to other records; readers skip them. Bytes that are cut off are kept
in the partition's directory, as *.damaged.

The broker must be stopped. Exit status 3: there are losses that were not accepted.
"""

_METADATA = "__cluster_metadata-0"
_LOST_WITH_METADATA = "settings of topics and brokers, ACLs, SCRAM users, empty topics without a directory"
_CONSEQUENCES = {
    CONSUMER_OFFSETS: "groups of this partition may return to older offsets, or have none",
    TRANSACTION_STATE: (
        "decisions about transactions are lost, and older ones may be outdated: the transactional ids of this\n"
        "  partition are forgotten and get new producer ids; restart their producers"
    ),
}
_IDS_SHOWN_MAX = 20


def repair(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Data directory of a broker that is stopped.")],
    accept_loss: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTITION",
            help="Continue without what this partition (TOPIC-NUMBER) has lost; can be repeated.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a data directory has lost, and continue without it on request."""
    from fencepost.broker.cluster_metadata import ForeignMetadata
    from fencepost.broker.directory_repair import NotADataDirectory
    from fencepost.log.repair import CannotRepair
    from fencepost.log.side_files import CorruptSideFile
    from fencepost.metadata.records import UnreadableMetadata
    from fencepost.shell.directory_lock import DirectoryInUse, DirectoryLock

    if not data.is_dir():
        raise CommandFailed(f"{data} is not a directory", "give the data directory of `fencepost serve`")
    data = data.absolute()
    try:
        lock = DirectoryLock(data)
    except DirectoryInUse:
        raise CommandFailed(f"a broker is using {data}", "stop it first") from None
    except OSError as error:
        raise CommandFailed(f"cannot use {data}: {error.strerror}") from None
    try:
        status = _repair(data, accept_loss or [], as_json)
    except (NotADataDirectory, CannotRepair) as error:
        raise CommandFailed(str(error)) from None
    except (CorruptSideFile, UnreadableMetadata, ForeignMetadata) as error:
        raise CommandFailed(str(error), "restore the file from a backup") from None
    except OSError as error:
        raise CommandFailed(f"cannot use {error.filename or data}: {error.strerror}") from None
    finally:
        lock.release()
    raise typer.Exit(status)


def _repair(data: Path, accepted: list[str], as_json: bool) -> int:
    from fencepost.broker.directory_repair import DirectoryRepair
    from fencepost.shell.disk import RealDisk
    from fencepost.shell.ports import RealClock, RealRandomness

    disk = RealDisk()
    try:
        work = DirectoryRepair(disk, str(data), RealRandomness(), RealClock().wall_ms())
        before = work.survey()
        done = _accept(work, before, list(dict.fromkeys(accepted)))
        after = work.survey() if done else before
    finally:
        disk.close_all()
    document = _document(data, before, after, done)
    if as_json:
        print_json(document)
    else:
        _print(data, before, after, done)
    return 0 if after.is_whole else FOUND


def _accept(work: DirectoryRepair, found: Survey, names: list[str]) -> dict[str, tuple[Loss, ...]]:
    """Gives up what was named; returns the losses by partition. Changes nothing unless every one can be repaired."""
    damaged = {each.name: each for each in found.damaged}
    for name in names:
        if name == _METADATA and found.metadata is None:
            raise CommandFailed(
                f"{_METADATA} is not missing", "run the command without --accept-loss to see what is lost"
            )
        if name != _METADATA and name not in damaged:
            raise CommandFailed(
                f"{name} has lost nothing", "name a partition that the command without --accept-loss lists"
            )
        if name in damaged and damaged[name].problem:
            raise CommandFailed(f"{name} cannot be repaired: {damaged[name].problem}")
    done: dict[str, tuple[Loss, ...]] = {}
    if _METADATA in names:
        work.accept_metadata()
        done[_METADATA] = ()
    for name in names:
        if name != _METADATA:
            done[name] = work.accept(damaged[name].topic, damaged[name].index)
    return done


def _command(data: Path, name: str) -> str:
    words = ["fencepost", "repair", "--data", str(data), "--accept-loss", name]
    return " ".join(map(shell_word, words))


# For people


def _print(data: Path, before: Survey, after: Survey, done: dict[str, tuple[Loss, ...]]) -> None:
    if _METADATA in done and before.metadata is not None:
        say(f"{_METADATA}: written again with {_count(len(before.metadata.topics), 'topic')}")
    for each in before.damaged:
        if each.name in done:
            say(f"{each.name}: accepted; the broker opens it when it starts")
            _print_losses(done[each.name])
            _print_consequences(each)
    if after.metadata is not None:
        _print_metadata(data, after.metadata)
    for each in after.damaged:
        if each.problem:
            say(f"{each.name}: can be neither opened nor repaired: {each.problem}")
            continue
        say(f"{each.name}: cannot be opened")
        _print_losses(each.losses)
        _print_consequences(each)
        say(f"  to continue without it: {_command(data, each.name)}")
    _print_hanging(after.hanging)
    whole = after.partitions - len(after.damaged)
    if after.is_whole:
        say(f"{'nothing else' if done else 'nothing'} is lost: {_count(after.partitions, 'partition')} can be opened")
    else:
        say()
        say(f"{whole} of {_count(after.partitions, 'partition')} can be opened. Nothing was changed." if not done else
            f"{whole} of {_count(after.partitions, 'partition')} can be opened.")  # fmt: skip
        say("Restore missing files from a backup if you can: then nothing is lost.")


def _print_losses(losses: tuple[Loss, ...]) -> None:
    for loss in losses:
        say(f"  {loss.reason}")
        say(f"  lost: {_range_text(loss)}" + (f"; its bytes are kept in {loss.set_aside}" if loss.set_aside else ""))
        if loss.forgotten:
            say(f"  the segments before it were set aside, too: {', '.join(loss.forgotten)}")
        if loss.aborted:
            said = "count" if loss.aborted > 1 else "counts"
            say(f"  {_count(loss.aborted, 'transaction')} that may have ended there {said} as aborted")


def _print_consequences(damaged: DamagedPartition) -> None:
    if damaged.topic in _CONSEQUENCES:
        say(f"  {_CONSEQUENCES[damaged.topic]}")
    if damaged.forgotten_ids:
        more = len(damaged.forgotten_ids) - _IDS_SHOWN_MAX
        shown = ", ".join(damaged.forgotten_ids[:_IDS_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
        say(f"  forgotten transactional ids, as far as they can be read: {shown}")
    if damaged.open_transactions:
        say(
            f"  {_count(damaged.open_transactions, 'transaction')} would be open at its end; "
            "`fencepost txn find-hanging` shows those that nobody ends"
        )


def _print_hanging(hanging: list[HangingTransaction]) -> None:
    if not hanging:
        return
    say(f"{_count(len(hanging), 'transaction')} would stay open, and read_committed consumers would wait there:")
    for each in hanging:
        name = "" if each.transactional_id is None else f", transactional id {each.transactional_id}"
        say(
            f"  {each.topic}-{each.index} from offset {each.first_offset}: producer {each.producer_id} "
            f"epoch {each.producer_epoch}{name}"
        )
        say(f"    to abort it once the broker runs: {_abort_command(each)}")


def _abort_command(hanging: HangingTransaction) -> str:
    words = ["fencepost", "txn", "abort", "--topic", hanging.topic, "--partition", str(hanging.index)]
    return " ".join(map(shell_word, [*words, "--start-offset", str(hanging.first_offset), "--execute"]))


def _print_metadata(data: Path, rebuilt: RebuiltMetadata) -> None:
    say(f"{_METADATA}: missing, so the broker refuses to start")
    say(f"  lost: {_LOST_WITH_METADATA}")
    say("  can be restored from the directories of the partitions:")
    for topic in rebuilt.topics:
        say(f"    {topic.name}, {_count(topic.partition_count, 'partition')}")
    say("  topics would keep their records forever (retention.ms=-1) until you configure them again")
    say(f"  to continue with that: {_command(data, _METADATA)}")


def _range_text(loss: Loss) -> str:
    if loss.next_offset <= loss.first_offset:
        return "no offsets"
    if loss.next_offset == loss.first_offset + 1:
        return f"offset {loss.first_offset}"
    return f"offsets {loss.first_offset} to {loss.next_offset - 1}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# For programs


def _document(data: Path, before: Survey, after: Survey, done: dict[str, tuple[Loss, ...]]) -> dict[str, Any]:
    left = {each.name for each in after.damaged}
    known = {each.name: each for each in (*before.damaged, *after.damaged)}
    metadata = before.metadata
    return {
        "data": str(data),
        "partitions": after.partitions,
        "is_whole": after.is_whole,
        "damaged": [
            {
                "partition": name,
                "is_accepted": name in done,
                "can_be_opened": name not in left,
                "problem": each.problem or None,
                "lost": [
                    {
                        "reason": loss.reason,
                        "first_offset": loss.first_offset,
                        "last_offset": loss.next_offset - 1,
                        "set_aside": loss.set_aside,
                        "aborted_transactions": loss.aborted,
                        "forgotten": list(loss.forgotten),
                    }
                    for loss in done.get(name, each.losses)
                ],
                "open_transactions": each.open_transactions,
                "forgotten_ids": list(each.forgotten_ids),
                "command": None if each.problem or name not in left else _command(data, name),
            }
            for name, each in known.items()
        ],
        "hanging": [
            {
                "topic": each.topic,
                "partition": each.index,
                "start_offset": each.first_offset,
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "transactional_id": each.transactional_id,
                "command": _abort_command(each),
            }
            for each in after.hanging
        ],
        "cluster_metadata": None if metadata is None else {
            "is_accepted": _METADATA in done,
            "topics": {topic.name: topic.partition_count for topic in metadata.topics},
            "lost": _LOST_WITH_METADATA,
            "next_producer_id": metadata.next_producer_id,
            "command": None if _METADATA in done else _command(data, _METADATA),
        },
    }  # fmt: skip
