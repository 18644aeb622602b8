import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java client on secured listeners: {@code SecureProgram JSON}. Runs one after the other: a transaction, held open
 * for a while if wanted, then its records read back by a group. Prints one JSON object per run.
 */
public final class SecureProgram {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        for (JsonNode run : JSON.readTree(arguments[0]).get("runs")) {
            ObjectNode event = JSON.createObjectNode().put("name", run.get("name").asText());
            try {
                produce(run);
                var values = event.putArray("values");
                consume(run).forEach(values::add);
            } catch (Exception error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                event.put("error", cause.getClass().getSimpleName()).put("message", String.valueOf(cause.getMessage()));
            }
            System.out.println(JSON.writeValueAsString(event));
        }
    }

    private static Map<String, Object> properties(JsonNode run) {
        Map<String, Object> properties = new HashMap<>();
        run.get("properties").fields().forEachRemaining(one -> properties.put(one.getKey(), one.getValue().asText()));
        return properties;
    }

    private static void produce(JsonNode run) throws Exception {
        Map<String, Object> config = properties(run);
        String topic = run.get("topic").asText();
        config.put("transactional.id", topic);
        config.put("max.block.ms", 20000);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, null, "first")).get();
            long end = System.currentTimeMillis() + run.path("holdMs").asLong(0);
            int sent = 0;
            while (System.currentTimeMillis() < end) {
                producer.send(new ProducerRecord<>(topic, null, "held " + sent++)).get();
                Thread.sleep(100);
            }
            producer.send(new ProducerRecord<>(topic, null, "last")).get();
            producer.commitTransaction();
        }
    }

    private static TreeSet<String> consume(JsonNode run) {
        Map<String, Object> config = properties(run);
        config.put("group.id", "java-" + run.get("topic").asText());
        config.put("isolation.level", "read_committed");
        config.put("auto.offset.reset", "earliest");
        TreeSet<String> values = new TreeSet<>();
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(run.get("topic").asText()));
            while (!values.contains("last")) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    values.add(record.value());
                }
            }
        }
        return values;
    }
}
