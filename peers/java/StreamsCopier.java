import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The exactly-once loop as a Kafka Streams application with exactly_once_v2: {@code StreamsCopier PLAN}.
 *
 * A state store counts the inputs of each key, and its count must be the ordinal that the input carries: a store
 * that was restored to anything but the committed state would say another one. Now and then the topology fails on
 * purpose: Streams aborts the transaction and starts a new thread at the committed position.
 */
public final class StreamsCopier {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String COUNTS = "counts";

    /** The dice said so. */
    private static final class Aborted extends RuntimeException { }

    public static void main(String[] arguments) throws Exception {
        JsonNode plan = JSON.readTree(arguments[0]);
        File state = Files.createTempDirectory(Path.of(plan.get("directory").asText()), "streams-").toFile();
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, plan.get("group").asText());
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, plan.get("bootstrap").asText());
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 20);
        config.put(StreamsConfig.STATE_DIR_CONFIG, state.getPath());
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        config.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.consumerPrefix("session.timeout.ms"), plan.get("session_timeout_ms").asInt());
        config.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), plan.get("heartbeat_interval_ms").asInt());
        config.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        config.put(StreamsConfig.consumerPrefix("max.poll.records"), plan.get("inputs_per_transaction").asInt());
        config.put(StreamsConfig.consumerPrefix("fetch.max.wait.ms"), 50);
        // A killed instance comes back under another transactional id: its open transaction has to time out.
        config.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 3_000);
        config.put(StreamsConfig.producerPrefix("delivery.timeout.ms"), 15_000);
        // Streams would hold its outputs back until the commit: a kill should find some of them in the log.
        config.put(StreamsConfig.producerPrefix("linger.ms"), 0);
        for (String name : new String[] {"reconnect.backoff.ms", "retry.backoff.ms"}) {
            config.put(name, 20);
        }
        config.put("reconnect.backoff.max.ms", 100);
        config.put("request.timeout.ms", 5_000);

        String first = plan.get("outputs").get(0).asText();
        String second = plan.get("outputs").get(1).asText();
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.inMemoryKeyValueStore(COUNTS), Serdes.String(), Serdes.Integer()));
        Random random = new Random(plan.get("seed").asLong());
        // Transactions are of about so many inputs; the probability holds per transaction.
        double abortProbability = plan.get("abort_probability").asDouble() / plan.get("inputs_per_transaction").asInt() / 2;
        KStream<String, String> inputs = builder.<String, String>stream(plan.get("source").asText())
            .process(() -> new Counter(random, abortProbability, plan.get("pause_ms").asInt()), Named.as("count"), COUNTS);
        inputs.mapValues(value -> first + ":" + value).to(first);
        inputs.selectKey((key, value) -> value.split(",")[2]).mapValues(value -> second + ":" + value).to(second);

        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(problem -> {
            Throwable cause = problem;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            if (cause instanceof IllegalStateException) {
                print(event("wrong").put("cause", String.valueOf(cause.getMessage())));
            }
            boolean wanted = cause instanceof Aborted;
            print(event(wanted ? "aborted" : "recreated").put("cause", wanted ? "random" : cause.getClass().getSimpleName()));
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        while (System.in.read() != -1) { }
        streams.close(java.time.Duration.ofSeconds(10));
    }

    private static final class Counter extends ContextualProcessor<String, String, String, String> {
        private final Random random;
        private final double abortProbability;
        private final int pauseMs;
        private KeyValueStore<String, Integer> counts;

        Counter(Random random, double abortProbability, int pauseMs) {
            this.random = random;
            this.abortProbability = abortProbability;
            this.pauseMs = pauseMs;
        }

        @Override
        public void init(org.apache.kafka.streams.processor.api.ProcessorContext<String, String> context) {
            super.init(context);
            counts = context.getStateStore(COUNTS);
        }

        @Override
        public void process(Record<String, String> record) {
            Integer count = counts.get(record.key());
            int ordinal = count == null ? 0 : count;
            if (ordinal != Integer.parseInt(record.value().split(",")[3])) {
                throw new IllegalStateException("the store has counted " + ordinal + " before " + record.value());
            }
            counts.put(record.key(), ordinal + 1);
            context().forward(record);
            double dice = random.nextDouble();
            if (dice < abortProbability) {
                throw new Aborted();
            }
            if (dice > 0.99) {
                pause();
            }
        }

        private void pause() {
            try {
                Thread.sleep(pauseMs);
            } catch (InterruptedException stop) {
                Thread.currentThread().interrupt();
            }
        }
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
