"""Every public method of the client libraries people use, called against Fencepost and Apache Kafka alike."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in an old-fashioned way
    from tests.interop.whole_api.kafka_python_calls import LIBRARY as KAFKA_PYTHON
from tests.interop.whole_api.aiokafka_calls import LIBRARY as AIOKAFKA
from tests.interop.whole_api.confluent_calls import LIBRARY as CONFLUENT

LIBRARIES = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)
