"""The Prometheus metrics of a broker, with Kafka-like names, computed on request."""

import asyncio
import socket
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector

from fencepost.shell.metrics_endpoint import serve_registry
from fencepost.shell.running_broker import RunningBroker
from fencepost.wire.catalog import ApiKey


class NodeCollector:
    """Collects the metrics of one broker."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._events: dict[str, int] = {}
        broker.node.events.subscribe(self._count)

    def _count(self, event: object) -> None:
        name = type(event).__name__
        self._events[name] = self._events.get(name, 0) + 1

    def collect(self) -> Iterator[Metric]:
        node = self._broker.node
        requests = CounterMetricFamily("kafka_network_requestmetrics_requests", "Requests handled.", labels=["request"])
        for key, count in node.calls.items():
            requests.add_metric([ApiKey(key).camel_name], count)
        yield requests
        trailing = CounterMetricFamily(
            "fencepost_requests_with_trailing_bytes",
            "Requests with trailing bytes, which were ignored.",
            labels=["request"],
        )
        for key, count in node.calls_with_trailing_bytes.items():
            trailing.add_metric([ApiKey(key).camel_name], count)
        yield trailing
        events = CounterMetricFamily("fencepost_events", "Events of the feed, by kind.", labels=["event"])
        for name, count in sorted(self._events.items()):
            events.add_metric([name], count)
        yield events
        yield CounterMetricFamily(
            "fencepost_group_commit_syncs", "Syncs by group commit.", value=node.group_commit.syncs
        )
        yield CounterMetricFamily(
            "fencepost_expensive_request_pauses",
            "How often an expensive request waited because its client had used up its share of CPU time.",
            value=node.slices.pauses,
        )
        yield GaugeMetricFamily(
            "kafka_server_socket_server_metrics_connection_count",
            "Open connections.",
            value=len(self._broker.connections.open),
        )
        yield GaugeMetricFamily(
            "kafka_server_delayedoperationpurgatory_purgatorysize", "Waiting requests.", value=node.parked_requests
        )
        yield GaugeMetricFamily(
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            "Fetch sessions.",
            value=len(node.fetch_sessions),
        )
        yield GaugeMetricFamily(
            "kafka_controller_kafkacontroller_globaltopiccount", "Topics.", value=len(node.metadata.topics)
        )
        yield GaugeMetricFamily("kafka_server_replicamanager_partitioncount", "Partitions.", value=node.partition_total)
        yield GaugeMetricFamily(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Failed data directories.",
            value=int(node.storage_failure is not None),
        )
        yield from self._partitions()

    def _partitions(self) -> Iterator[Metric]:
        labels = ["topic", "partition"]
        gauges = {
            name: GaugeMetricFamily(f"kafka_log_log_{name}", text, labels=labels)
            for name, text in (
                ("logstartoffset", "First offset."),
                ("logendoffset", "Next offset."),
                ("highwatermark", "Records below it are visible to consumers."),
                ("laststableoffset", "Records below it are visible to read_committed consumers."),
                ("size", "Bytes."),
            )
        }
        for partition in self._broker.node.all_partitions():
            log = partition.log
            key = [partition.topic, str(partition.index)]
            gauges["logstartoffset"].add_metric(key, log.log_start_offset)
            gauges["logendoffset"].add_metric(key, log.log_end_offset)
            gauges["highwatermark"].add_metric(key, log.high_watermark)
            gauges["laststableoffset"].add_metric(key, log.last_stable_offset)
            gauges["size"].add_metric(key, log.size_bytes)
        yield from gauges.values()


async def serve_metrics(broker: RunningBroker, bound: socket.socket) -> asyncio.Server:
    registry = CollectorRegistry()
    registry.register(NodeCollector(broker))
    ProcessCollector(registry=registry)
    return await serve_registry(registry, bound)
