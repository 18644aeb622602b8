"""Which epoch a log is in, what its checkpoint has to say, and what followers and consumers are told."""

from fencepost.log.leader_epochs import EpochEnd, EpochEntry, LeaderEpochs


def test_an_epoch_begins_with_its_leader_before_anything_is_written() -> None:
    epochs = LeaderEpochs()
    epochs.begin(0, 0)
    assert epochs.latest == 0
    assert epochs.epoch_of(0) == 0
    assert epochs.end_offset_for(0, log_end_offset=0) == EpochEnd(0, 0)
    assert not epochs.dirty, "thousands of partitions start without a write each"


def test_the_first_batch_of_an_epoch_makes_its_checkpoint_due() -> None:
    epochs = LeaderEpochs()
    epochs.begin(3, 10)
    epochs.assign(3, 10)
    assert epochs.dirty
    epochs.note_written()
    epochs.assign(3, 11)
    assert not epochs.dirty
    assert epochs.entries == (EpochEntry(3, 10),)


def test_a_leader_that_wrote_nothing_leaves_no_trace_once_the_next_begins() -> None:
    epochs = LeaderEpochs([EpochEntry(0, 0)])
    epochs.begin(1, 100)
    epochs.begin(2, 100)
    assert epochs.entries == (EpochEntry(0, 0), EpochEntry(2, 100))
    assert epochs.end_offset_for(0, log_end_offset=100) == EpochEnd(0, 100)
    assert epochs.end_offset_for(1, log_end_offset=100) == EpochEnd(0, 100)
    assert not epochs.dirty


def test_batches_of_a_follower_name_epochs_that_no_leader_began_here() -> None:
    epochs = LeaderEpochs()
    epochs.assign(4, 0)
    epochs.assign(6, 20)
    assert epochs.entries == (EpochEntry(4, 0), EpochEntry(6, 20))
    assert epochs.dirty


def test_an_epoch_whose_batches_were_cut_off_can_begin_again() -> None:
    epochs = LeaderEpochs()
    epochs.begin(1, 5)
    epochs.assign(1, 5)
    epochs.truncate_from_end(5)
    assert epochs.latest == -1
    epochs.note_written()
    epochs.assign(1, 5)
    assert epochs.entries == (EpochEntry(1, 5),)
    assert epochs.dirty
