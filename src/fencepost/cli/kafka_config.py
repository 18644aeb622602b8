"""`fencepost kafka-config`: the server.properties with which Apache Kafka starts on a data directory."""

from pathlib import Path
from typing import Annotated

import typer

from fencepost.cli.output import CommandFailed, say

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

EPILOG = """\
\b
Examples:
  fencepost kafka-config --data ./data > server.properties
  bin/kafka-server-start.sh server.properties

Stop Fencepost first. Afterwards stop Apache Kafka and start Fencepost on the directory again, as often as you like.
Listeners with TLS or SASL and super users are not part of the directory: repeat them in the file.
"""


def kafka_config(
    data: Annotated[Path, typer.Option(metavar="DIR", help="The data directory.", show_default=False)],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where clients connect.")] = "localhost:9092",
    controller: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the controller listens.")
    ] = "localhost:9093",
) -> None:
    """Print the configuration with which Apache Kafka continues with this data directory."""
    from fencepost.log.side_files import CorruptSideFile, read_meta_properties
    from fencepost.metadata.image import MetadataImage
    from fencepost.metadata.kafka_properties import Addresses, server_properties
    from fencepost.metadata.log_files import MetadataLog
    from fencepost.metadata.records import UnreadableMetadata
    from fencepost.shell.disk import RealDisk

    directory, disk = str(data.resolve()), RealDisk()
    log, image = MetadataLog(disk, directory), MetadataImage()
    try:
        properties = read_meta_properties(disk, directory)
        if properties is None:
            raise CommandFailed(f"{data} is not the data directory of a broker: there is no meta.properties")
        if not log.exists():
            raise CommandFailed(
                f"{data} has no metadata log", "start this version of Fencepost on it once, which converts the journal"
            )
        stored = log.read()
        image.apply(stored.records)
    except (CorruptSideFile, UnreadableMetadata) as error:
        raise CommandFailed(str(error)) from None
    for line in server_properties(properties.node_id, directory, stored, image, Addresses(listen, controller)):
        say(line)
