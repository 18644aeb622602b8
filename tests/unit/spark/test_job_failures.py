"""What a chain of Java exceptions says about a job that failed. tests/spark/test_failure_signs.py has Spark's own."""

import json

import pytest

from fencepost.spark.job_failures import Failure, Link, failure_of, judge

SPARK = Link(("org.apache.spark.SparkException", "java.lang.Exception", "java.lang.Throwable"))
EOF = Link(("java.io.EOFException", "java.io.IOException", "java.lang.Exception", "java.lang.Throwable"))
RUNTIME = Link(("java.lang.RuntimeException", "java.lang.Exception", "java.lang.Throwable"))
KEPT = Link(SPARK.classes, "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND")


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ([SPARK], Failure.PROCESS_LOST),
        ([SPARK, SPARK, EOF], Failure.PROCESS_LOST),
        ([SPARK, Link(("org.apache.spark.shuffle.FetchFailedException",))], Failure.PROCESS_LOST),
        ([KEPT], Failure.KEPT_ROWS_LOST),
        ([SPARK, Link(SPARK.classes, "_LEGACY_ERROR_TEMP_3007")], Failure.KEPT_ROWS_LOST),
        ([SPARK, RUNTIME], Failure.OTHER),
        ([Link(SPARK.classes, "SPARK_JOB_CANCELLED")], Failure.OTHER),
        ([Link(("org.apache.spark.api.python.PythonException",), "PYTHON_EXCEPTION")], Failure.OTHER),
        ([], Failure.OTHER),
    ],
)
def test_the_last_cause_decides(chain: list[Link], expected: Failure) -> None:
    assert judge(chain) is expected


def test_what_is_not_sparks_is_not_worth_another_attempt() -> None:
    pytest.importorskip("pyspark")
    assert failure_of(LookupError("ExecutorLostFailure")) is Failure.OTHER
    assert failure_of(RuntimeError("ModuleNotFoundError: No module named 'fencepost'")) is Failure.NO_PACKAGE


SPARK_EXCEPTION = ["org.apache.spark.SparkException", "java.lang.Exception", "java.lang.Throwable"]
PYTHON_EXCEPTION = ["org.apache.spark.api.python.PythonException", "java.lang.RuntimeException", "java.lang.Exception"]
ANALYSIS = ["org.apache.spark.sql.AnalysisException", "java.lang.Exception"]


@pytest.mark.parametrize(
    ("classes", "condition", "expected"),
    [
        # The server tells of the outermost exception only, so that of a task is not seen: it is tried again, too.
        (SPARK_EXCEPTION, None, Failure.PROCESS_LOST),
        (SPARK_EXCEPTION, "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND", Failure.KEPT_ROWS_LOST),
        (SPARK_EXCEPTION, "SPARK_JOB_CANCELLED", Failure.OTHER),
        (PYTHON_EXCEPTION, "PYTHON_EXCEPTION", Failure.OTHER),
        (PYTHON_EXCEPTION, None, Failure.OTHER),
        (ANALYSIS, "TABLE_OR_VIEW_NOT_FOUND", Failure.OTHER),
        (["com.example.Unheard"], None, Failure.OTHER),
    ],
)
def test_under_connect_the_class_that_the_server_names_decides(
    classes: list[str], condition: str | None, expected: Failure
) -> None:
    """As PySpark's own client converts what the server says."""
    pytest.importorskip("grpc")
    connect = pytest.importorskip("pyspark.errors.exceptions.connect")
    error_details = pytest.importorskip("google.rpc.error_details_pb2")
    said = {"classes": json.dumps(classes), **({"errorClass": condition} if condition else {})}
    info = error_details.ErrorInfo(reason=classes[0], metadata=said)
    assert failure_of(connect.convert_exception(info, "it failed", None)) is expected
