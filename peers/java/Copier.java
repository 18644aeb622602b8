import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The exactly-once loop with the Java client: {@code Copier PLAN}. Consumes, produces two records per input, sends
 * the offsets and commits, until standard input closes. Prints one JSON object per event.
 */
public final class Copier {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** The dice said so. */
    private static final class Aborted extends Exception { }

    private final JsonNode plan;
    private final Random random;
    private final AtomicBoolean stopping = new AtomicBoolean();
    private final KafkaConsumer<String, String> consumer;
    private KafkaProducer<String, String> producer;

    private Copier(JsonNode plan) {
        this.plan = plan;
        this.random = new Random(plan.get("seed").asLong());
        this.producer = newProducer();
        Map<String, Object> config = network();
        config.put("group.id", plan.get("group").asText());
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", "read_committed");
        config.put("session.timeout.ms", plan.get("session_timeout_ms").asInt());
        config.put("heartbeat.interval.ms", plan.get("heartbeat_interval_ms").asInt());
        config.put("max.poll.records", plan.get("inputs_per_transaction").asInt());
        config.put("fetch.max.wait.ms", 50);
        this.consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    public static void main(String[] arguments) throws Exception {
        new Copier(JSON.readTree(arguments[0])).run();
    }

    private void run() throws Exception {
        Thread stopper = new Thread(() -> {
            try {
                while (System.in.read() != -1) { }
            } catch (java.io.IOException ignored) {
                // A broken standard input is a closed one.
            }
            stopping.set(true);
        });
        stopper.setDaemon(true);
        stopper.start();
        consumer.subscribe(List.of(plan.get("source").asText()));
        while (!stopping.get()) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            if (!records.isEmpty()) {
                oneTransaction(records);
            }
        }
        consumer.close();
        producer.close();
    }

    private void oneTransaction(ConsumerRecords<String, String> records) throws InterruptedException {
        try {
            copy(records);
            print(event("committed").put("count", records.count()));
        } catch (Aborted aborted) {
            abort("random");
            rewind();
        } catch (KafkaException problem) {
            abort(problem.getClass().getSimpleName());
            rewind();
        }
    }

    private void copy(ConsumerRecords<String, String> records) throws Aborted, InterruptedException {
        boolean aborts = random.nextDouble() < plan.get("abort_probability").asDouble();
        boolean early = random.nextBoolean();
        String first = plan.get("outputs").get(0).asText();
        String second = plan.get("outputs").get(1).asText();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            String receiver = record.value().split(",")[2];
            producer.send(new ProducerRecord<>(first, record.key(), first + ":" + record.value()));
            producer.send(new ProducerRecord<>(second, receiver, second + ":" + record.value()));
        }
        pause();
        if (aborts && early) {
            throw new Aborted();
        }
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (TopicPartition partition : records.partitions()) {
            List<ConsumerRecord<String, String>> of = records.records(partition);
            positions.put(partition, new OffsetAndMetadata(of.get(of.size() - 1).offset() + 1));
        }
        producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
        pause();
        if (aborts) {
            throw new Aborted();
        }
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException again) {
                print(event("retried").put("cause", "commitTransaction timed out"));
            }
        }
    }

    private void pause() throws InterruptedException {
        Thread.sleep((long) (random.nextDouble() * plan.get("pause_ms").asInt()));
    }

    /** Aborts; a producer that cannot even do that has failed for good. */
    private void abort(String cause) {
        try {
            producer.abortTransaction();
            print(event("aborted").put("cause", cause));
        } catch (KafkaException problem) {
            print(event("recreated").put("cause", cause + ", " + problem.getClass().getSimpleName()));
            producer.close(Duration.ZERO);
            producer = newProducer();
        }
    }

    private KafkaProducer<String, String> newProducer() {
        Map<String, Object> config = network();
        config.put("transactional.id", plan.get("transactional_id").asText());
        config.put("transaction.timeout.ms", plan.get("transaction_timeout_ms").asInt());
        config.put("linger.ms", 2);
        config.put("delivery.timeout.ms", 15_000);
        while (true) {
            KafkaProducer<String, String> fresh = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
            try {
                fresh.initTransactions();
                return fresh;
            } catch (KafkaException problem) {
                print(event("recreated").put("cause", problem.getClass().getSimpleName()));
                fresh.close(Duration.ZERO);
            }
        }
    }

    /** Back to the committed position: the consumer's own one is after what was not committed. */
    private void rewind() {
        while (true) {
            try {
                Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                for (TopicPartition partition : consumer.assignment()) {
                    OffsetAndMetadata position = committed.get(partition);
                    consumer.seek(partition, position == null ? 0 : position.offset());
                }
                return;
            } catch (KafkaException problem) {
                print(event("retried").put("cause", problem.getClass().getSimpleName()));
            }
        }
    }

    private Map<String, Object> network() {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", plan.get("bootstrap").asText());
        config.put("reconnect.backoff.ms", 10);
        config.put("reconnect.backoff.max.ms", 100);
        config.put("retry.backoff.ms", 20);
        config.put("request.timeout.ms", 5_000);
        return config;
    }

    private static ObjectNode event(String kind) {
        return JSON.createObjectNode().put("event", kind);
    }

    private static synchronized void print(ObjectNode event) {
        byte[] line = (event + "\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(line, 0, line.length);
        System.out.flush();
    }
}
