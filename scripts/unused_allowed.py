"""What vulture takes for unused, and why it stays. A name that is used again, or gone, goes from here too.

`make lint` runs vulture over `src` alone: what only tests use has to say so here."""

# Called by Python, asyncio, urllib, starlette, uvicorn, ssl or numba under these names.
_.__getattr__
_.regex
_.convert
_.to_string
_.should_exit
_.redirect_request
_.get_buffer
_.sizehint
_.buffer_updated
_.eof_received
_.pause_writing
_.resume_writing
_.num_tickets
_.typing_context

# Public: the broker in your test, and the pipelines to start from.
_.restart
_.by_account
_.transfer

# Called by source that `wire/encoding.py` writes.
_.with_empty_tags

# Names of Kafka's protocol and files, listed whole.
_.SNAPSHOT_HEADER
_.SNAPSHOT_FOOTER
_.KRAFT_VERSION
_.KRAFT_VOTERS
_.CONSUMER_GROUP_HEARTBEAT

# Replicas, which a cluster needs; tested, and not served yet.
_.truncated
_.set_high_watermark
_.append_as_follower
_.has_late_transaction

# Called by modules that `[tool.vulture]` excludes.
_.parse_settings

# Seen by tests and benchmarks alone.
_.document_makers
_.is_complete
_.segments_before
_.segments_after
_.run_to_end
_.write_all
_.snapshot_offset
_.open_files
_.generations
_.left_behind
_.is_muted
_.request_class
_.encode_parts
_.encode_records
_.convert_batch
_.with_log_append_time

# broker: not sorted yet into what a library or a reader of events uses by name, and what can go.
_.LogRecovered
_.OPERATIONS_NOT_ASKED
_.UPGRADE
_.authorized_operations
_.bytes_after
_.bytes_before
_.cluster_authorized_operations
_.elements_at_once_max
_.next_cursor
_.topic_authorized_operations
_.topic_config_error_code
_.truncated_bytes

# client: not sorted yet into what a library or a reader of events uses by name, and what can go.
_.ArrowReader
_.CLIENT_METRICS_CONFIG
_.DYNAMIC_BROKER_CONFIG
_.DYNAMIC_BROKER_LOGGER_CONFIG
_.DYNAMIC_DEFAULT_BROKER_CONFIG
_.GROUP_CONFIG
_.NO_COORDINATOR_EPOCH
_.STATIC_BROKER_CONFIG
_.finalized
_.partition_size_bytes
_.supported

# coordinators: not sorted yet into what a library or a reader of events uses by name, and what can go.
_.Journal
_.NOT_IN_TRANSACTION
_.NO_GENERATION
_.StateMachine
_.authorized_operations
_.client_epoch
_.client_producer_id
_.current_epoch
_.current_member_id
_.current_producer_id
_.is_forgotten
_.log_errors
_.max_mem
_.member_count
_.never_capture
_.new_member_id
_.new_producer_id
_.old_member_id
_.old_producer_id
_.open_ms
_.rolled_back_count

# spark: not sorted yet into what a library or a reader of events uses by name, and what can go.
_.DataType
_.FencepostSource
_.__signature__
_.client_address
_.close_lines
_.docs_table
_.fencepost
_.getDefaultReadLimit
_.handle_error
_.initialOffset
_.overwrite
_.prepareForTriggerAvailableNow
_.reportLatestOffset
_.rows_by_topic
_.situation
_.streamReader
_.streamWriter
_.test

# Read by joserfc.
_.max_header_length
_.max_payload_length
_.max_signature_length

# metadata: what the controller needs.
_.NO_LEADER
