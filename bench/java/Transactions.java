import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactions of Kafka's Java producer, one thread and one producer per transactional id, again and again in
 * one JVM. One line in, separated by tabs: bootstrap, topic, partitions, ids, records, size, seconds, prefix; or "close".
 * Out: one line of JSON, or "failed: why". Producers stay open between samples, until "close".
 */
public final class Transactions {
    private static final Map<String, Map<Integer, KafkaProducer<byte[], byte[]>>> OPEN = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.gc();
            try {
                System.out.println(line.equals("close") ? close() : run(line.split("\t")));
            } catch (Exception e) {
                System.out.println("failed: " + String.valueOf(e).replace('\n', ' '));
            }
            System.out.flush();
        }
    }

    private static String close() {
        OPEN.values().forEach(producers -> producers.values().parallelStream().forEach(KafkaProducer::close));
        OPEN.clear();
        return "{}";
    }

    private static KafkaProducer<byte[], byte[]> open(String bootstrap, String id) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        return producer;
    }

    private static String run(String[] words) throws Exception {
        String bootstrap = words[0];
        String topic = words[1];
        int partitions = Integer.parseInt(words[2]);
        int ids = Integer.parseInt(words[3]);
        int records = Integer.parseInt(words[4]);
        byte[] value = new byte[Integer.parseInt(words[5])];
        long length = (long) (Double.parseDouble(words[6]) * 1e9);
        Map<Integer, KafkaProducer<byte[], byte[]>> producers =
                OPEN.computeIfAbsent(bootstrap, any -> new ConcurrentHashMap<>());
        CountDownLatch ready = new CountDownLatch(ids);
        CountDownLatch go = new CountDownLatch(1);
        AtomicReference<Exception> failure = new AtomicReference<>();
        long[] clock = new long[2];
        long[][][] taken = new long[ids][][];
        Thread[] threads = new Thread[ids];
        for (int i = 0; i < ids; i++) {
            int number = i;
            threads[i] = new Thread(() -> {
                try {
                    KafkaProducer<byte[], byte[]> producer =
                            producers.computeIfAbsent(number, any -> open(bootstrap, words[7] + "-" + number));
                    int next = number;
                    // The first transaction learns where the topic's partitions are.
                    next = transaction(producer, topic, partitions, next, records, value, null, 0);
                    ready.countDown();
                    go.await();
                    long[][] mine = new long[2][1024];
                    int done = 0;
                    while (System.nanoTime() < clock[1]) {
                        if (done == mine[0].length) {
                            mine[0] = Arrays.copyOf(mine[0], 2 * done);
                            mine[1] = Arrays.copyOf(mine[1], 2 * done);
                        }
                        next = transaction(producer, topic, partitions, next, records, value, mine, done);
                        if (System.nanoTime() <= clock[1]) {
                            done++;
                        }
                    }
                    taken[number] = new long[][] {Arrays.copyOf(mine[0], done), Arrays.copyOf(mine[1], done)};
                } catch (Exception e) {
                    failure.compareAndSet(null, e);
                    ready.countDown();
                }
            });
            threads[i].start();
        }
        ready.await();
        clock[0] = System.nanoTime();
        clock[1] = clock[0] + length;
        go.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        long[] commits = sorted(taken, 0);
        long[] wholes = sorted(taken, 1);
        return String.format(
                "{\"transactions\": %d, \"seconds\": %.6f, \"backed_off\": 0, \"commit_p50_us\": %.1f, "
                        + "\"commit_p99_us\": %.1f, \"whole_p50_us\": %.1f, \"whole_p99_us\": %.1f}",
                commits.length, length / 1e9, at(commits, 50), at(commits, 99), at(wholes, 50), at(wholes, 99));
    }

    private static int transaction(
            KafkaProducer<byte[], byte[]> producer, String topic, int partitions, int first, int records, byte[] value,
            long[][] times, int index) {
        long opened = System.nanoTime();
        int next = first;
        producer.beginTransaction();
        for (int i = 0; i < records; i++) {
            producer.send(new ProducerRecord<>(topic, next++ % partitions, null, value));
        }
        long called = System.nanoTime();
        producer.commitTransaction();
        if (times != null) {
            long now = System.nanoTime();
            times[0][index] = now - called;
            times[1][index] = now - opened;
        }
        return next;
    }

    private static long[] sorted(long[][][] taken, int which) {
        return Arrays.stream(taken).flatMapToLong(each -> Arrays.stream(each[which])).sorted().toArray();
    }

    private static double at(long[] sorted, int percent) {
        return sorted.length == 0 ? 0.0 : sorted[sorted.length * percent / 100] / 1e3;
    }
}
