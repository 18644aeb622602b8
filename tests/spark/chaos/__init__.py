"""The example pipelines on a Spark cluster of several processes, all of which are killed now and then."""
