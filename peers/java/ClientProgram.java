import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java client as the interop tests drive it: {@code ClientProgram produce|consume|member JSON}.
 * Prints one JSON object per event. A member runs until standard input closes, then leaves cleanly.
 */
public final class ClientProgram {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        JsonNode options = JSON.readTree(arguments[1]);
        switch (arguments[0]) {
            case "produce" -> produce(options);
            case "consume" -> consume(options);
            case "member" -> member(options);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void produce(JsonNode options) throws Exception {
        Map<String, Object> config = base(options);
        config.put("compression.type", options.path("compression").asText("none"));
        config.put("enable.idempotence", true);
        config.put("linger.ms", 50);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode each : options.get("records")) {
                var record = new ProducerRecord<>(options.get("topic").asText(), each.get("partition").asInt(),
                    each.hasNonNull("timestamp") ? each.get("timestamp").asLong() : null, text(each.get("key")), text(each.get("value")));
                for (JsonNode header : each.path("headers")) {
                    String value = text(header.get(1));
                    record.headers().add(header.get(0).asText(), value == null ? null : value.getBytes("UTF-8"));
                }
                sent.add(producer.send(record));
            }
            for (Future<RecordMetadata> future : sent) {
                RecordMetadata metadata = future.get();
                ObjectNode event = event("produced");
                event.put("partition", metadata.partition());
                event.put("offset", metadata.offset());
                print(event);
            }
        }
    }

    private static void consume(JsonNode options) throws Exception {
        Map<String, Object> config = base(options);
        List<TopicPartition> partitions = new ArrayList<>();
        for (JsonNode partition : options.get("partitions")) {
            partitions.add(new TopicPartition(options.get("topic").asText(), partition.asInt()));
        }
        int count = options.get("count").asInt();
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (count > 0) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    print(record(record));
                    count--;
                }
            }
        }
    }

    private static void member(JsonNode options) throws Exception {
        Map<String, Object> config = base(options);
        config.put("group.id", options.get("group").asText());
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        config.put("session.timeout.ms", options.path("session_timeout_ms").asInt(10_000));
        config.put("heartbeat.interval.ms", 300);
        if (options.hasNonNull("instance_id")) {
            config.put("group.instance.id", options.get("instance_id").asText());
        }
        String assignor = options.path("assignor").asText("range");
        config.put("partition.assignment.strategy", switch (assignor) {
            case "cooperative-sticky" -> "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
            case "sticky" -> "org.apache.kafka.clients.consumer.StickyAssignor";
            case "roundrobin" -> "org.apache.kafka.clients.consumer.RoundRobinAssignor";
            default -> "org.apache.kafka.clients.consumer.RangeAssignor";
        });
        var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        Thread stopper = new Thread(() -> {
            try {
                while (System.in.read() != -1) { }
            } catch (java.io.IOException ignored) {
                // A broken standard input is a closed one.
            }
            consumer.wakeup();
        });
        stopper.setDaemon(true);
        stopper.start();
        consumer.subscribe(List.of(options.get("topic").asText()), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                print(partitions("revoked", partitions));
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                print(partitions("given", partitions));
                print(partitions("assigned", consumer.assignment()));
            }

            @Override
            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                print(partitions("lost", partitions));
            }
        });
        try {
            while (true) {
                var records = consumer.poll(Duration.ofMillis(200));
                for (var record : records) {
                    print(record(record));
                }
                if (!records.isEmpty()) {
                    consumer.commitSync();
                    print(event("committed"));
                }
            }
        } catch (WakeupException stop) {
            consumer.close();
        }
        print(event("left"));
    }

    private static Map<String, Object> base(JsonNode options) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", options.get("bootstrap").asText());
        config.put("client.id", options.path("client_id").asText("java"));
        return config;
    }

    private static ObjectNode record(ConsumerRecord<String, String> record) {
        ObjectNode event = event("record");
        event.put("partition", record.partition());
        event.put("offset", record.offset());
        event.put("timestamp", record.timestamp());
        event.put("key", record.key());
        event.put("value", record.value());
        ArrayNode headers = event.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value() == null ? null : new String(header.value(), java.nio.charset.StandardCharsets.UTF_8));
        }
        return event;
    }

    private static ObjectNode partitions(String kind, Collection<TopicPartition> partitions) {
        ObjectNode event = event(kind);
        ArrayNode list = event.putArray("partitions");
        partitions.stream().map(TopicPartition::partition).sorted().forEach(list::add);
        return event;
    }

    private static ObjectNode event(String kind) {
        return JSON.createObjectNode().put("event", kind);
    }

    private static String text(JsonNode node) {
        return node == null || node.isNull() ? null : node.asText();
    }

    private static synchronized void print(ObjectNode event) {
        System.out.println(event);
        System.out.flush();
    }
}
