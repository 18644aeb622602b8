import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client commits transactions one after the other: BOOTSTRAP ID TOPIC COUNT. */
public final class JavaTransactions {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", arguments[1]);
        settings.put("request.timeout.ms", "2000");
        settings.put("reconnect.backoff.ms", "5");
        settings.put("retry.backoff.ms", "10");
        settings.put("linger.ms", "0");
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            producer.initTransactions();
            for (int n = 0; n < Integer.parseInt(arguments[3]); n++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(arguments[2], 0, null, Integer.toString(n).getBytes()));
                producer.commitTransaction();
            }
        }
    }
}
