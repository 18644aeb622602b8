import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * One fixed sequence of AdminClient calls. Prints one JSON line per step, with what differs from broker to
 * broker (node ids, ports, topic ids, paths, times) replaced, so that the lines of two brokers can be compared.
 */
public final class AdminScript {
    private static final ObjectMapper JSON = new ObjectMapper().enable(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS);
    /** For calls that the client repeats until it gives up. */
    private static final int UNANSWERED_MS = 1000;
    /** Kafka's broker hears of a change of its controller a little after the client does. */
    private static final int PROPAGATION_MS = 150;
    /** The first record's time, given from outside: recent, or retention takes the records away. */
    private static long then;
    private final Admin admin;
    private final String bootstrap;
    private int nodeId;

    private AdminScript(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "request.timeout.ms", 20_000,
            "default.api.timeout.ms", 20_000));
    }

    public static void main(String[] arguments) throws Exception {
        then = Long.parseLong(arguments[1]);
        var script = new AdminScript(arguments[0]);
        try (script.admin) {
            script.cluster();
            script.createTopics();
            script.describeTopics();
            script.createPartitions();
            script.configs();
            script.recordsAndOffsets();
            script.logDirs();
            script.groups();
            script.security();
            script.features();
            script.producers();
            script.deleteTopics();
        }
    }

    private void cluster() throws Exception {
        nodeId = admin.describeCluster().nodes().get().iterator().next().id();
        step("describeCluster", () -> {
            var cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            var node = cluster.nodes().get().iterator().next();
            return facts(
                "nodes", cluster.nodes().get().size(),
                "node", node(node),
                "address is the one we used", bootstrap.equals(node.host() + ":" + node.port()),
                "rack", String.valueOf(node.rack()),
                "controller", node(cluster.controller().get()),
                "cluster id length", cluster.clusterId().get().length(),
                "operations", names(cluster.authorizedOperations().get()));
        });
        step("listTopics of an empty cluster", () -> sorted(admin.listTopics().names().get()));
    }

    private void createTopics() {
        each("createTopics", admin.createTopics(List.of(
            new NewTopic("plain", 3, (short) 1),
            new NewTopic("defaults", Optional.empty(), Optional.empty()),
            new NewTopic("compacted", 1, (short) 1).configs(Map.of("cleanup.policy", "compact", "segment.bytes", "2097152")),
            new NewTopic("assigned", Map.of(0, List.of(nodeId), 1, List.of(nodeId))))).values());
        step("createTopics result", () -> {
            var result = admin.createTopics(List.of(new NewTopic("resulting", 2, (short) 1).configs(Map.of("retention.ms", "1000"))));
            return facts(
                "partitions", result.numPartitions("resulting").get(),
                "replication", result.replicationFactor("resulting").get(),
                "has id", !result.topicId("resulting").get().equals(Uuid.ZERO_UUID),
                "configs", configs(result.config("resulting").get()));
        });
        var bad = new TreeMap<String, NewTopic>();
        bad.put("existing", new NewTopic("plain", 1, (short) 1));
        bad.put("invalid character", new NewTopic("no spaces", 1, (short) 1));
        bad.put("dot", new NewTopic(".", 1, (short) 1));
        bad.put("two dots", new NewTopic("..", 1, (short) 1));
        bad.put("empty", new NewTopic("", 1, (short) 1));
        bad.put("too long", new NewTopic("x".repeat(250), 1, (short) 1));
        bad.put("longest", new NewTopic("x".repeat(249), 1, (short) 1));
        bad.put("zero partitions", new NewTopic("zero-partitions", 0, (short) 1));
        bad.put("negative partitions", new NewTopic("negative-partitions", -2, (short) 1));
        bad.put("zero replicas", new NewTopic("zero-replicas", 1, (short) 0));
        bad.put("negative replicas", new NewTopic("negative-replicas", 1, (short) -2));
        bad.put("too many replicas", new NewTopic("too-many-replicas", 1, (short) 3));
        bad.put("unknown config", new NewTopic("unknown-config", 1, (short) 1).configs(Map.of("no.such.config", "1")));
        bad.put("bad config value", new NewTopic("bad-config", 1, (short) 1).configs(Map.of("retention.ms", "soon")));
        bad.put("config out of range", new NewTopic("config-range", 1, (short) 1).configs(Map.of("segment.bytes", "1")));
        bad.put("bad enumeration", new NewTopic("bad-enumeration", 1, (short) 1).configs(Map.of("compression.type", "brotli")));
        bad.put("bad policy", new NewTopic("bad-policy", 1, (short) 1).configs(Map.of("cleanup.policy", "burn")));
        bad.put("unknown broker", new NewTopic("unknown-broker", Map.of(0, List.of(nodeId + 7))));
        bad.put("no replicas", new NewTopic("no-replicas", Map.of(0, List.of())));
        bad.put("hole in assignment", new NewTopic("hole", Map.of(1, List.of(nodeId))));
        bad.put("duplicate replicas", new NewTopic("duplicate-replicas", Map.of(0, List.of(nodeId, nodeId))));
        bad.put("underscore collision", new NewTopic("a.b", 1, (short) 1));
        bad.put("underscore collision 2", new NewTopic("a_b", 1, (short) 1));
        bad.put("internal name", new NewTopic("__consumer_offsets_2", 1, (short) 1));
        for (var entry : bad.entrySet()) {
            step("createTopics: " + entry.getKey(), () -> {
                admin.createTopics(List.of(entry.getValue())).all().get();
                return "created";
            });
        }
        step("createTopics: validate only", () -> {
            admin.createTopics(List.of(new NewTopic("only-validated", 1, (short) 1)), new CreateTopicsOptions().validateOnly(true)).all().get();
            return admin.listTopics().names().get().contains("only-validated");
        });
        step("createTopics: validate only an existing one", () ->
            admin.createTopics(List.of(new NewTopic("plain", 1, (short) 1)), new CreateTopicsOptions().validateOnly(true)).all().get());
        step("createTopics: same name twice", () ->
            admin.createTopics(List.of(new NewTopic("twice", 1, (short) 1), new NewTopic("twice", 2, (short) 1))).all().get());
    }

    private void describeTopics() {
        step("listTopics", () -> sorted(admin.listTopics().names().get()));
        step("listTopics with internal", () -> admin.listTopics(new ListTopicsOptions().listInternal(true)).listings().get().stream()
            .map(l -> l.name() + (l.isInternal() ? " internal" : "") + (l.topicId().equals(Uuid.ZERO_UUID) ? " no id" : "")).sorted().toList());
        for (String topic : List.of("plain", "defaults", "assigned", "resulting", "unknown", "no spaces")) {
            step("describeTopics: " + topic, () -> topic(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic)));
        }
        step("describeTopics with operations", () -> names(admin.describeTopics(List.of("plain"),
            new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames().get().get("plain").authorizedOperations()));
        step("describeTopics page by page", () -> admin.describeTopics(List.of("plain", "assigned", "resulting"),
            new DescribeTopicsOptions().partitionSizeLimitPerResponse(1)).allTopicNames().get().values().stream()
            .map(t -> t.name() + " " + t.partitions().size()).sorted().toList());
        step("describeTopics by id", () -> {
            Uuid id = admin.describeTopics(List.of("plain")).allTopicNames().get().get("plain").topicId();
            return topic(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id));
        });
        step("describeTopics by unknown id", () -> {
            Uuid id = new Uuid(5, 6);
            return topic(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id));
        });
    }

    private void createPartitions() {
        var changes = new TreeMap<String, Map<String, NewPartitions>>();
        changes.put("1 more", Map.of("plain", NewPartitions.increaseTo(4)));
        changes.put("2 same", Map.of("plain", NewPartitions.increaseTo(4)));
        changes.put("3 fewer", Map.of("plain", NewPartitions.increaseTo(2)));
        changes.put("4 unknown", Map.of("unknown", NewPartitions.increaseTo(2)));
        changes.put("5 assigned", Map.of("plain", NewPartitions.increaseTo(5, List.of(List.of(nodeId)))));
        changes.put("6 assigned to nobody", Map.of("plain", NewPartitions.increaseTo(6, List.of(List.of(nodeId + 7)))));
        changes.put("7 assigned too few", Map.of("plain", NewPartitions.increaseTo(8, List.of(List.of(nodeId)))));
        changes.put("8 assigned two replicas", Map.of("plain", NewPartitions.increaseTo(6, List.of(List.of(nodeId, nodeId)))));
        changes.put("9 zero", Map.of("plain", NewPartitions.increaseTo(0)));
        for (var change : changes.entrySet()) {
            step("createPartitions: " + change.getKey(), () -> {
                admin.createPartitions(change.getValue()).all().get();
                return "done";
            });
        }
        step("createPartitions: validate only", () -> {
            admin.createPartitions(Map.of("plain", NewPartitions.increaseTo(9)), new CreatePartitionsOptions().validateOnly(true)).all().get();
            return "done";
        });
        step("partitions after all that", () -> admin.describeTopics(List.of("plain")).allTopicNames().get().get("plain").partitions().size());
    }

    private void configs() {
        var plain = new ConfigResource(ConfigResource.Type.TOPIC, "plain");
        var compacted = new ConfigResource(ConfigResource.Type.TOPIC, "compacted");
        var broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(nodeId));
        var everyBroker = new ConfigResource(ConfigResource.Type.BROKER, "");
        step("describeConfigs: topic", () -> describe(plain));
        step("describeConfigs: compacted topic", () -> overridden(compacted));
        step("describeConfigs: unknown topic", () -> describe(new ConfigResource(ConfigResource.Type.TOPIC, "unknown")));
        step("describeConfigs: invalid topic", () -> describe(new ConfigResource(ConfigResource.Type.TOPIC, "no spaces")));
        step("describeConfigs: broker", () -> describe(broker));
        step("describeConfigs: default broker", () -> overridden(everyBroker));
        step("describeConfigs: unknown broker", () -> admin.describeConfigs(List.of(new ConfigResource(ConfigResource.Type.BROKER,
            String.valueOf(nodeId + 7))), new DescribeConfigsOptions().timeoutMs(UNANSWERED_MS)).all().get().size());
        step("describeConfigs: broker that is no number", () -> describe(new ConfigResource(ConfigResource.Type.BROKER, "me")));
        step("describeConfigs: group", () -> describe(new ConfigResource(ConfigResource.Type.GROUP, "some-group")));
        step("describeConfigs: client metrics", () -> overridden(new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "some")));
        step("describeConfigs: with synonyms and documentation", () -> {
            var entries = admin.describeConfigs(List.of(plain), new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true)).all().get().get(plain);
            var found = new TreeMap<String, Object>();
            for (String name : List.of("retention.ms", "cleanup.policy", "segment.bytes", "compression.type", "min.insync.replicas")) {
                var entry = entries.get(name);
                found.put(name, facts("synonyms", entry.synonyms().stream().map(s -> s.name() + "=" + s.value() + " " + s.source()).toList(),
                    "documented", entry.documentation() != null && !entry.documentation().isEmpty()));
            }
            return found;
        });
        alter("set two", plain, op("retention.ms", "123456", AlterConfigOp.OpType.SET), op("segment.bytes", "1048576", AlterConfigOp.OpType.SET));
        alter("delete one", plain, op("segment.bytes", null, AlterConfigOp.OpType.DELETE));
        alter("delete one that is not set", plain, op("segment.ms", null, AlterConfigOp.OpType.DELETE));
        alter("append to a list", plain, op("cleanup.policy", "compact", AlterConfigOp.OpType.APPEND));
        alter("append what is there", plain, op("cleanup.policy", "compact", AlterConfigOp.OpType.APPEND));
        alter("subtract from a list", plain, op("cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT));
        alter("back to deletion", plain, op("cleanup.policy", null, AlterConfigOp.OpType.DELETE));
        alter("append to a number", plain, op("retention.ms", "1", AlterConfigOp.OpType.APPEND));
        alter("unknown name", plain, op("no.such.config", "1", AlterConfigOp.OpType.SET));
        alter("bad value", plain, op("retention.ms", "soon", AlterConfigOp.OpType.SET));
        alter("out of range", plain, op("segment.bytes", "1", AlterConfigOp.OpType.SET));
        alter("null value", plain, op("retention.ms", null, AlterConfigOp.OpType.SET));
        alter("same name twice", plain, op("retention.ms", "1", AlterConfigOp.OpType.SET), op("retention.ms", "2", AlterConfigOp.OpType.SET));
        alter("one good and one bad", plain, op("retention.ms", "777", AlterConfigOp.OpType.SET), op("segment.bytes", "x", AlterConfigOp.OpType.SET));
        alter("unknown topic", new ConfigResource(ConfigResource.Type.TOPIC, "unknown"), op("retention.ms", "1", AlterConfigOp.OpType.SET));
        alter("invalid topic", new ConfigResource(ConfigResource.Type.TOPIC, "no spaces"), op("retention.ms", "1", AlterConfigOp.OpType.SET));
        step("incrementalAlterConfigs: validate only", () -> {
            admin.incrementalAlterConfigs(Map.of(plain, List.of(op("retention.ms", "5", AlterConfigOp.OpType.SET))),
                new AlterConfigsOptions().validateOnly(true)).all().get();
            return overridden(plain);
        });
        alter("dynamic broker setting", broker, op("log.retention.ms", "99999999", AlterConfigOp.OpType.SET));
        step("a topic inherits the dynamic broker setting", () -> {
            admin.incrementalAlterConfigs(Map.of(plain, List.of(op("retention.ms", null, AlterConfigOp.OpType.DELETE)))).all().get();
            var entry = awaitValue(plain, "retention.ms", "99999999");
            return entry.value() + " " + entry.source();
        });
        alter("delete dynamic broker setting", broker, op("log.retention.ms", null, AlterConfigOp.OpType.DELETE));
        alter("default broker setting", everyBroker, op("log.retention.ms", "88888888", AlterConfigOp.OpType.SET));
        alter("delete default broker setting", everyBroker, op("log.retention.ms", null, AlterConfigOp.OpType.DELETE));
        alter("read-only broker setting", broker, op("node.id", "5", AlterConfigOp.OpType.SET));
        alter("unknown broker setting", broker, op("no.such.config", "5", AlterConfigOp.OpType.SET));
        alter("bad broker setting", broker, op("log.retention.ms", "soon", AlterConfigOp.OpType.SET));
        step("incrementalAlterConfigs: unknown broker", () -> admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.BROKER,
            String.valueOf(nodeId + 7)), List.of(op("log.retention.ms", "1", AlterConfigOp.OpType.SET))), new AlterConfigsOptions().timeoutMs(UNANSWERED_MS)).all().get());
        step("listConfigResources", () -> admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC), new ListConfigResourcesOptions()).all().get()
            .stream().map(r -> r.type() + " " + r.name()).sorted().toList());
        step("listConfigResources of all types", () -> admin.listConfigResources().all().get().stream()
            .map(r -> r.type() + " " + (r.type() == ConfigResource.Type.BROKER && !r.name().isEmpty() ? "N" : r.name())).sorted().toList());
    }

    private void recordsAndOffsets() throws Exception {
        var zero = new TopicPartition("assigned", 0);
        var one = new TopicPartition("assigned", 1);
        try (var producer = new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer())) {
            long[] times = {then, then + 3000, then + 1000, then + 2000};
            for (int i = 0; i < 20; i++) {
                producer.send(new ProducerRecord<>("assigned", 0, times[i % 4] + i / 4 * 10_000L, "k" + i, "v" + i)).get();
            }
        }
        var specs = new TreeMap<String, OffsetSpec>();
        specs.put("earliest", OffsetSpec.earliest());
        specs.put("latest", OffsetSpec.latest());
        specs.put("max timestamp", OffsetSpec.maxTimestamp());
        specs.put("earliest local", OffsetSpec.earliestLocal());
        specs.put("latest tiered", OffsetSpec.latestTiered());
        specs.put("earliest pending upload", OffsetSpec.earliestPendingUpload());
        specs.put("time before all", OffsetSpec.forTimestamp(1));
        specs.put("time at the first", OffsetSpec.forTimestamp(then));
        specs.put("time in the middle", OffsetSpec.forTimestamp(then + 2500));
        specs.put("time of the last", OffsetSpec.forTimestamp(then + 43_000));
        specs.put("time after all", OffsetSpec.forTimestamp(then + 99_000));
        for (var spec : specs.entrySet()) {
            for (var partition : List.of(zero, one)) {
                step("listOffsets: " + spec.getKey() + " of " + partition, () -> offset(partition, spec.getValue(), IsolationLevel.READ_UNCOMMITTED));
            }
            step("listOffsets: " + spec.getKey() + " of committed", () -> offset(zero, spec.getValue(), IsolationLevel.READ_COMMITTED));
        }
        var fast = new ListOffsetsOptions();
        fast.timeoutMs(UNANSWERED_MS);
        step("listOffsets: unknown partition", () -> admin.listOffsets(Map.of(new TopicPartition("assigned", 9), OffsetSpec.latest()), fast).all().get().size());
        deleteRecords("some", zero, 5);
        deleteRecords("fewer", zero, 3);
        deleteRecords("same", zero, 5);
        deleteRecords("beyond the end", zero, 21);
        deleteRecords("negative", zero, -2);
        step("listOffsets: earliest after deletion", () -> offset(zero, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED));
        step("listOffsets: time of a deleted record", () -> offset(zero, OffsetSpec.forTimestamp(then), IsolationLevel.READ_UNCOMMITTED));
        deleteRecords("all", zero, -1);
        step("listOffsets: earliest after deleting all", () -> offset(zero, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED));
        step("listOffsets: max timestamp after deleting all", () -> offset(zero, OffsetSpec.maxTimestamp(), IsolationLevel.READ_UNCOMMITTED));
        var brief = new DeleteRecordsOptions();
        brief.timeoutMs(UNANSWERED_MS);
        step("deleteRecords: unknown topic", () -> admin.deleteRecords(Map.of(new TopicPartition("unknown", 0), RecordsToDelete.beforeOffset(1)), brief).all().get());
        step("deleteRecords: compacted topic", () -> admin.deleteRecords(Map.of(new TopicPartition("compacted", 0), RecordsToDelete.beforeOffset(0)), brief).all().get());
    }

    private void logDirs() {
        step("describeLogDirs", () -> {
            var directories = admin.describeLogDirs(List.of(nodeId)).allDescriptions().get().get(nodeId);
            var replicas = new TreeMap<String, Object>();
            boolean sized = true;
            for (var directory : directories.values()) {
                sized &= directory.totalBytes().isPresent() && directory.usableBytes().isPresent();
                directory.replicaInfos().forEach((partition, info) -> {
                    if (partition.topic().equals("assigned")) {
                        replicas.put(partition.toString(), facts("has size", info.size() > 0, "lag", info.offsetLag(), "future", info.isFuture()));
                    }
                });
            }
            return facts("directories", directories.size(), "sized", sized, "replicas", replicas,
                "error", String.valueOf(directories.values().iterator().next().error()));
        });
        step("describeReplicaLogDirs", () -> {
            var replica = new TopicPartitionReplica("assigned", 0, nodeId);
            var info = admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica);
            return facts("has directory", info.getCurrentReplicaLogDir() != null, "lag", info.getCurrentReplicaOffsetLag());
        });
    }

    private void groups() throws Exception {
        var zero = new TopicPartition("assigned", 0);
        var one = new TopicPartition("assigned", 1);
        step("listGroups: none", () -> groupList());
        step("describeConsumerGroups: unknown", () -> group("unknown"));
        step("describeClassicGroups: unknown", () -> classicGroup("unknown"));
        step("listConsumerGroupOffsets: unknown", () -> offsets(admin.listConsumerGroupOffsets("unknown").partitionsToOffsetAndMetadata().get()));
        step("deleteConsumerGroups: unknown", () -> admin.deleteConsumerGroups(List.of("unknown")).all().get());
        step("deleteConsumerGroups: empty name", () -> admin.deleteConsumerGroups(List.of("")).all().get());
        step("deleteConsumerGroupOffsets: unknown", () -> admin.deleteConsumerGroupOffsets("unknown", Set.of(zero)).all().get());
        step("removeMembersFromConsumerGroup: unknown", () -> admin.removeMembersFromConsumerGroup("unknown",
            new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("instance")))).all().get());

        step("alterConsumerGroupOffsets: new group", () -> admin.alterConsumerGroupOffsets("offline", Map.of(
            zero, new OffsetAndMetadata(7, Optional.of(3), "note"), one, new OffsetAndMetadata(0))).all().get());
        step("alterConsumerGroupOffsets: unknown partition", () -> admin.alterConsumerGroupOffsets("offline", Map.of(
            new TopicPartition("assigned", 99), new OffsetAndMetadata(1))).partitionResult(new TopicPartition("assigned", 99)).get());
        step("alterConsumerGroupOffsets: metadata too large", () -> admin.alterConsumerGroupOffsets("offline", Map.of(
            zero, new OffsetAndMetadata(1, "x".repeat(5000)))).partitionResult(zero).get());
        step("listConsumerGroupOffsets", () -> offsets(admin.listConsumerGroupOffsets("offline").partitionsToOffsetAndMetadata().get()));
        step("listConsumerGroupOffsets: of some partitions", () -> offsets(admin.listConsumerGroupOffsets(Map.of("offline",
            new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(zero, new TopicPartition("plain", 0), new TopicPartition("unknown", 1)))))
            .partitionsToOffsetAndMetadata("offline").get()));
        step("describeConsumerGroups: offline", () -> group("offline"));
        step("describeClassicGroups: offline", () -> classicGroup("offline"));
        step("deleteConsumerGroupOffsets: some", () -> {
            var result = admin.deleteConsumerGroupOffsets("offline", Set.of(one, new TopicPartition("plain", 2)));
            return facts("one", outcome(result.partitionResult(one)), "never committed", outcome(result.partitionResult(new TopicPartition("plain", 2))));
        });
        step("listConsumerGroupOffsets: after deletion", () -> offsets(admin.listConsumerGroupOffsets("offline").partitionsToOffsetAndMetadata().get()));

        var config = Map.<String, Object>of("bootstrap.servers", bootstrap, "group.id", "online", "client.id", "me",
            "group.instance.id", "instance", "auto.offset.reset", "earliest", "enable.auto.commit", false);
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("assigned"));
            while (consumer.assignment().isEmpty()) {
                consumer.poll(Duration.ofMillis(100));
            }
            consumer.commitSync(Map.of(zero, new OffsetAndMetadata(20), one, new OffsetAndMetadata(0, "lag")));
            step("describeConsumerGroups: online", () -> group("online"));
            step("describeClassicGroups: online", () -> classicGroup("online"));
            step("describeConsumerGroups with operations", () -> names(admin.describeConsumerGroups(List.of("online"),
                new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).all().get().get("online").authorizedOperations()));
            step("listGroups: two", () -> groupList());
            step("listGroups: stable", () -> admin.listGroups(new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE))).all().get()
                .stream().map(GroupListing::groupId).sorted().toList());
            step("listGroups: empty", () -> admin.listGroups(new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY))).all().get()
                .stream().map(GroupListing::groupId).sorted().toList());
            step("listGroups: classic", () -> admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.CLASSIC))).all().get()
                .stream().map(GroupListing::groupId).sorted().toList());
            step("listGroups: consumer type", () -> admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER))).all().get()
                .stream().map(GroupListing::groupId).sorted().toList());
            step("deleteConsumerGroups: non-empty", () -> admin.deleteConsumerGroups(List.of("online")).all().get());
            step("alterConsumerGroupOffsets: non-empty", () -> admin.alterConsumerGroupOffsets("online", Map.of(zero, new OffsetAndMetadata(1))).all().get());
            step("deleteConsumerGroupOffsets: subscribed", () -> admin.deleteConsumerGroupOffsets("online", Set.of(zero)).partitionResult(zero).get());
            step("deleteConsumerGroupOffsets: not subscribed", () -> {
                var plain = new TopicPartition("plain", 0);
                return outcome(admin.deleteConsumerGroupOffsets("online", Set.of(plain)).partitionResult(plain));
            });
            step("removeMembersFromConsumerGroup: unknown member", () -> admin.removeMembersFromConsumerGroup("online",
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("stranger")))).memberResult(new MemberToRemove("stranger")).get());
            step("removeMembersFromConsumerGroup: all", () -> admin.removeMembersFromConsumerGroup("online",
                new RemoveMembersFromConsumerGroupOptions()).all().get());
            step("describeConsumerGroups: emptied", () -> group("online"));
        }
        step("listConsumerGroupOffsets: of two groups", () -> {
            var result = admin.listConsumerGroupOffsets(Map.of("online", new ListConsumerGroupOffsetsSpec(), "offline", new ListConsumerGroupOffsetsSpec()));
            return facts("online", offsets(result.partitionsToOffsetAndMetadata("online").get()), "offline", offsets(result.partitionsToOffsetAndMetadata("offline").get()));
        });
        step("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of("online", "offline")).all().get());
        step("listGroups: none again", () -> groupList());
        step("listConsumerGroupOffsets: deleted", () -> offsets(admin.listConsumerGroupOffsets("offline").partitionsToOffsetAndMetadata().get()));
        step("describeConsumerGroups: deleted", () -> group("offline"));
    }

    private void security() {
        var binding = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "plain", PatternType.LITERAL),
            new AccessControlEntry("User:me", "*", AclOperation.READ, AclPermissionType.ALLOW));
        step("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get().size());
        step("createAcls", () -> admin.createAcls(List.of(binding)).all().get());
        step("deleteAcls", () -> admin.deleteAcls(List.of(binding.toFilter())).all().get().size());
        step("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size());
        step("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all().get().size());
        step("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens().get().size());
    }

    private void features() {
        step("describeFeatures", () -> {
            var metadata = admin.describeFeatures().featureMetadata().get();
            var found = new TreeMap<String, Object>();
            metadata.finalizedFeatures().forEach((name, range) -> found.put("finalized " + name, range.minVersionLevel() + "-" + range.maxVersionLevel()));
            metadata.supportedFeatures().forEach((name, range) -> found.put("supported " + name, range.minVersion() + "-" + range.maxVersion()));
            found.put("has epoch", metadata.finalizedFeaturesEpoch().isPresent());
            return found;
        });
        step("updateFeatures: unknown", () -> admin.updateFeatures(Map.of("no.such.feature",
            new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all().get());
        step("updateFeatures: too high", () -> admin.updateFeatures(Map.of("transaction.version",
            new FeatureUpdate((short) 99, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all().get());
        step("updateFeatures: downgrade called an upgrade", () -> admin.updateFeatures(Map.of("transaction.version",
            new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all().get());
        step("updateFeatures: downgrade, validated", () -> admin.updateFeatures(Map.of("transaction.version",
            new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)), new UpdateFeaturesOptions().validateOnly(true)).all().get());
        step("updateFeatures: downgrade", () -> {
            admin.updateFeatures(Map.of("transaction.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)),
                new UpdateFeaturesOptions()).all().get();
            return awaitFeature("transaction.version", (short) 1);
        });
        step("updateFeatures: upgrade", () -> {
            admin.updateFeatures(Map.of("transaction.version", new FeatureUpdate((short) 2, FeatureUpdate.UpgradeType.UPGRADE)),
                new UpdateFeaturesOptions()).all().get();
            return awaitFeature("transaction.version", (short) 2);
        });
    }

    private void producers() {
        step("listTransactions", () -> admin.listTransactions().all().get().size());
        step("describeProducers", () -> {
            var partition = new TopicPartition("assigned", 0);
            return admin.describeProducers(List.of(partition)).all().get().get(partition).activeProducers().stream()
                .map(p -> "epoch " + p.producerEpoch() + " sequence " + p.lastSequence() + " open " + p.currentTransactionStartOffset().isPresent()
                    + " coordinator " + p.coordinatorEpoch()).toList();
        });
    }

    private void deleteTopics() {
        each("deleteTopics", admin.deleteTopics(List.of("plain", "unknown", "no spaces")).topicNameValues());
        step("deleteTopics: by id", () -> {
            Uuid id = admin.describeTopics(List.of("assigned")).allTopicNames().get().get("assigned").topicId();
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
            return "deleted";
        });
        step("deleteTopics: by unknown id", () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(new Uuid(1, 2)))).all().get());
        step("deleteTopics: again", () -> admin.deleteTopics(List.of("plain")).all().get());
        step("listTopics: after deletion", () -> {
            var names = sorted(admin.listTopics().names().get());
            for (int i = 0; i < 100 && (names.contains("plain") || names.contains("assigned")); i++) {
                Thread.sleep(20);
                names = sorted(admin.listTopics().names().get());
            }
            return names;
        });
        step("createTopics: a deleted name again", () -> {
            admin.createTopics(List.of(new NewTopic("plain", 1, (short) 1))).all().get();
            for (int i = 0; i < 100 && !admin.listTopics().names().get().contains("plain"); i++) {
                Thread.sleep(20);
            }
            return offset(new TopicPartition("plain", 0), OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED);
        });
    }

    // ---- one step, one line -------------------------------------------------------------------------------------

    private static void step(String name, Callable<Object> call) {
        Map<String, Object> line = facts("event", "step", "step", name);
        try {
            line.put("answer", call.call());
        } catch (Throwable error) {
            Throwable cause = error;
            while (cause instanceof ExecutionException && cause.getCause() != null) {
                cause = cause.getCause();
            }
            line.put("error", cause.getClass().getSimpleName());
            line.put("message", String.valueOf(cause.getMessage()));
        }
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (Exception impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static void each(String name, Map<String, ? extends Future<?>> futures) {
        for (var entry : new TreeMap<>(futures).entrySet()) {
            step(name + ": " + entry.getKey(), () -> {
                entry.getValue().get();
                return "done";
            });
        }
    }

    private static String outcome(Future<?> future) {
        try {
            future.get();
            return "done";
        } catch (Exception error) {
            return (error.getCause() == null ? error : error.getCause()).getClass().getSimpleName();
        }
    }

    private void alter(String name, ConfigResource resource, AlterConfigOp... operations) {
        step("incrementalAlterConfigs: " + name, () -> {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(operations))).all().get();
            if (resource.type() == ConfigResource.Type.BROKER) {
                return "done";
            }
            Thread.sleep(PROPAGATION_MS);
            return overridden(resource);
        });
    }

    private void deleteRecords(String name, TopicPartition partition, long before) {
        step("deleteRecords: " + name, () ->
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(before))).lowWatermarks().get(partition).get().lowWatermark());
    }

    private Object offset(TopicPartition partition, OffsetSpec spec, IsolationLevel level) throws Exception {
        var found = admin.listOffsets(Map.of(partition, spec), new ListOffsetsOptions(level)).partitionResult(partition).get();
        return facts("offset", found.offset(), "timestamp", found.timestamp(), "epoch", found.leaderEpoch().map(String::valueOf).orElse("none"));
    }

    // ---- values without what differs from broker to broker ------------------------------------------------------

    private String node(Node node) {
        return node == null ? "none" : node.isEmpty() ? "empty" : node.id() == nodeId ? "N" : String.valueOf(node.id());
    }

    private Object topic(TopicDescription topic) {
        return facts("name", topic.name(), "internal", topic.isInternal(), "has id", !topic.topicId().equals(Uuid.ZERO_UUID),
            "partitions", topic.partitions().stream().map(p -> p.partition() + " leader " + node(p.leader()) + " replicas "
                + p.replicas().stream().map(this::node).toList() + " isr " + p.isr().stream().map(this::node).toList()
                + " elr " + p.elr() + " last known elr " + p.lastKnownElr()).toList());
    }

    private static Map<String, Object> configs(Config config) {
        var found = new TreeMap<String, Object>();
        for (var entry : config.entries()) {
            found.put(entry.name(), entry.value() + " | " + entry.source() + " | " + entry.type()
                + (entry.isReadOnly() ? " | read-only" : "") + (entry.isSensitive() ? " | sensitive" : ""));
        }
        return found;
    }

    private Object describe(ConfigResource resource) throws Exception {
        return configs(admin.describeConfigs(List.of(resource)).all().get().get(resource));
    }

    /** Only what is set for the resource itself. */
    private Object overridden(ConfigResource resource) throws Exception {
        var found = new TreeMap<String, Object>();
        for (var entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            if (entry.source() != ConfigEntry.ConfigSource.DEFAULT_CONFIG && entry.source() != ConfigEntry.ConfigSource.STATIC_BROKER_CONFIG) {
                found.put(entry.name(), entry.value() + " | " + entry.source());
            }
        }
        return found;
    }

    private ConfigEntry awaitValue(ConfigResource resource, String name, String value) throws Exception {
        ConfigEntry entry = null;
        for (int i = 0; i < 50; i++) {
            entry = admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name);
            if (value.equals(entry.value())) {
                break;
            }
            Thread.sleep(50);
        }
        return entry;
    }

    private Object awaitFeature(String name, short level) throws Exception {
        short found = -1;
        for (int i = 0; i < 50 && found != level; i++) {
            found = admin.describeFeatures().featureMetadata().get().finalizedFeatures().get(name).maxVersionLevel();
            Thread.sleep(20);
        }
        return found;
    }

    private Object group(String id) throws Exception {
        var group = admin.describeConsumerGroups(List.of(id)).all().get().get(id);
        return facts("id", group.groupId(), "simple", group.isSimpleConsumerGroup(), "type", group.type().toString(), "state", group.groupState().toString(),
            "assignor", group.partitionAssignor(), "coordinator", node(group.coordinator()),
            "members", group.members().stream().map(m -> m.clientId() + " host " + m.host() + " instance " + m.groupInstanceId().orElse("none")
                + " id starts with instance " + m.consumerId().startsWith(m.groupInstanceId().orElse("-"))
                + " has " + m.assignment().topicPartitions().stream().map(String::valueOf).sorted().toList()).sorted().toList());
    }

    private Object classicGroup(String id) throws Exception {
        var group = admin.describeClassicGroups(List.of(id)).all().get().get(id);
        return facts("id", group.groupId(), "protocol", group.protocol(), "data", group.protocolData(), "state", group.state().toString(),
            "members", group.members().size());
    }

    private Object groupList() throws Exception {
        return admin.listGroups().all().get().stream().map(g -> g.groupId() + " protocol " + g.protocol() + " type "
            + g.type().map(String::valueOf).orElse("none") + " state " + g.groupState().map(String::valueOf).orElse("none")
            + " simple " + g.isSimpleConsumerGroup()).sorted().toList();
    }

    private static Object offsets(Map<TopicPartition, OffsetAndMetadata> offsets) {
        var found = new TreeMap<String, Object>();
        offsets.forEach((partition, offset) -> found.put(partition.toString(), offset == null ? "none"
            : offset.offset() + " epoch " + offset.leaderEpoch().map(String::valueOf).orElse("none") + " note " + offset.metadata()));
        return found;
    }

    private static AlterConfigOp op(String name, String value, AlterConfigOp.OpType type) {
        return new AlterConfigOp(new ConfigEntry(name, value), type);
    }

    private static List<String> sorted(Collection<String> names) {
        return new ArrayList<>(new TreeSet<>(names));
    }

    private static Object names(Set<AclOperation> operations) {
        return operations == null ? "none" : operations.stream().map(Enum::name).sorted().collect(Collectors.toList());
    }

    private static Map<String, Object> facts(Object... pairs) {
        var found = new TreeMap<String, Object>();
        for (int i = 0; i < pairs.length; i += 2) {
            found.put((String) pairs[i], pairs[i + 1]);
        }
        return found;
    }
}
