"""In which order the files of the suite are handed out: the long ones first, so that the short ones fill the end.

Left to itself pytest-xdist begins with the files that have the most tests, and a file whose one test takes two minutes
comes last, alone. The figures are rough: seconds on two cores, and only the order of the files depends on them. What is
not listed counts as short.
"""

from collections.abc import Iterable

SECONDS = {
    "tests/spark/test_standalone.py": 120,
    "tests/spark/test_sink_stream.py": 80,
    "tests/spark/test_chaos.py": 100,
    "tests/spark/test_demo.py": 95,
    "tests/spark/test_spark35.py": 90,
    "tests/spark/test_sink_faults.py": 85,
    "tests/spark/test_run_command.py": 150,
    "tests/spark/test_across_clusters.py": 80,
    "tests/spark/test_sink_restarts.py": 140,
    "tests/spark/test_sink_idle.py": 75,
    "tests/spark/test_source_spark.py": 70,
    "tests/spark/test_pipeline.py": 65,
    "tests/spark/test_pipeline_docs.py": 90,
    "tests/spark/test_migration.py": 50,
    "tests/spark/test_offset_log.py": 50,
    "tests/spark/test_failure_signs.py": 40,
    "tests/spark/test_connect.py": 45,
    "tests/spark/test_decision_cells.py": 25,
    "tests/spark/test_sink_small.py": 90,
    "tests/spark/test_secure.py": 40,
    "tests/spark/test_sink_driver.py": 20,
    "tests/spark/test_late_markers.py": 15,
    "tests/spark/test_source_reader.py": 15,
    "tests/durability/test_kill_nine.py": 90,
    "tests/exactly_once/test_loops.py": 80,
    "tests/simulation/test_seeds.py": 75,
    "tests/cluster/test_members.py": 40,
    "tests/cluster/test_controller.py": 20,
    "tests/interop/test_groups.py": 60,
    "tests/page": 60,
    "tests/security": 60,
    "tests/security_acls": 60,
    "tests/interop/test_whole_api.py": 60,
    "tests/interop/test_transaction_parity.py": 45,
    # Compiles the kernels where they were never used, for all files that come after.
    "tests/unit/wire/test_arrow_records.py": 60,
    "tests/durability/test_power_cut.py": 40,
    "tests/hostile/test_costs.py": 50,
    "tests/unit/broker/test_opened_batches.py": 12,
    "tests/interop/test_clients.py": 40,
    "tests/insight/test_dump.py": 40,
    "tests/dashboard": 40,
    "tests/interop/test_raw_parity.py": 35,
    "tests/insight/test_lag.py": 35,
    "tests/chaos/test_chaos.py": 30,
    "tests/connect/test_runtime.py": 30,
    "tests/connect/test_chaos.py": 35,
    "tests/connect/test_postgres.py": 40,
    "tests/interop_client/test_secured.py": 30,
    "tests/interop_cli/test_produce_and_consume.py": 30,
    "tests/interop/test_admin_parity.py": 25,
    "tests/faults/test_tap_tls.py": 25,
    "tests/interop/test_dump_tool.py": 20,
    "tests/interop/test_group_transcript.py": 20,
    "tests/interop/test_transaction_tools.py": 20,
    "tests/interop/test_apache_directory.py": 20,
    "tests/interop/test_metadata_log.py": 12,
    "tests/interop/test_same_directory.py": 70,
    "tests/durability/test_metadata_conversion.py": 15,
    "tests/interop_cli/test_groups.py": 20,
    "tests/hostile/test_cli_refusals.py": 15,
    "tests/hostile/test_limits.py": 15,
    "tests/interop/test_restarts.py": 15,
    "tests/interop/test_empty_batches.py": 15,
    "tests/durability/test_missing_files.py": 10,
    "tests/interop_cli/test_topics_and_configs.py": 15,
    "tests/interop_client/test_group_consumer.py": 12,
    "tests/unit/scripts/test_suite_script.py": 10,
    "tests/unit/log/test_apache_kafka_files.py": 10,
    "tests/unit/log/test_cleaner.py": 10,
}
"""Of a file, or of each file in a directory."""


def seconds(file: str) -> int:
    return SECONDS.get(file) or SECONDS.get(file.rpartition("/")[0], 0)


def longest_first(files: Iterable[str]) -> dict[str, int]:
    """The place of each file. Equal ones keep their order, so that every worker comes to the same."""
    known = dict.fromkeys(files)
    return {file: place for place, file in enumerate(sorted(known, key=seconds, reverse=True))}
