// Every public method of KafkaJS, called on one broker: node whole_api.js BOOTSTRAP
// Prints the outcome of each scenario, result or error, as one JSON object per line; at last the methods that there are,
// and those that talk to no broker, with the reason.
const {
  Kafka,
  logLevel,
  AclOperationTypes,
  AclPermissionTypes,
  AclResourceTypes,
  ConfigResourceTypes,
  ResourcePatternTypes,
} = require("kafkajs");

const print = (event) => process.stdout.write(JSON.stringify(event) + "\n");
const [, , bootstrap] = process.argv;
const kafka = new Kafka({
  clientId: "whole-api",
  brokers: [bootstrap],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, retries: 4 },
});
const THEN = "1000000";
const PATIENCE_MS = 30000;

// ---------------------------------------------------------------- outcomes

// Compared only by whether it is there, or not at all.
const OWN_VALUES = new Set(["clientHost", "clusterId", "host", "memberId", "port", "brokerUrl", "controllerId"]);
const LEFT_OUT = new Set(["throttleTime", "clientSideThrottleTime", "errorMessage", "logAppendTime"]);

function plain(value) {
  if (value === undefined || value === null) return null;
  if (typeof value === "bigint") return String(value);
  if (value instanceof Error) return failure(value);
  if (Buffer.isBuffer(value)) return value.toString();
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object") return value;
  const found = {};
  for (const [name, each] of Object.entries(value)) {
    if (LEFT_OUT.has(name)) continue;
    found[name] = OWN_VALUES.has(name) ? (each === "" || each === null ? "absent" : "present") : plain(each);
  }
  return found;
}

function failure(error) {
  const found = { raised: error.name };
  if (error.type) found.type = error.type;
  if (error.errors) found.errors = error.errors.map(failure);
  if (error.groups) found.groups = error.groups.map((group) => [group.groupId, group.error && group.error.type]);
  if (error.partitions) found.partitions = error.partitions.map((each) => [each.partition, each.error && each.error.type]);
  if (error.cause && error.cause !== error) found.cause = failure(error.cause);
  return found;
}

async function outcome(promise) {
  try {
    return plain(await promise);
  } catch (error) {
    return failure(error);
  }
}

async function until(condition) {
  const deadline = Date.now() + PATIENCE_MS;
  while (Date.now() < deadline) {
    const found = await condition();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error(`it did not come within ${PATIENCE_MS} ms: ${condition}`);
}

// ---------------------------------------------------------------- scenes

class Scene {
  constructor(method) {
    this.method = method;
    this.settled = 0;
    // Of its own, because an administrator remembers every topic, and stumbles over those that were deleted.
    this.admin = kafka.admin();
  }

  name(stem = "t") {
    return `kafkajs-${this.method}-${stem}`;
  }

  async topic(stem = "t", partitions = 1, configEntries = []) {
    const topic = this.name(stem);
    await this.admin.createTopics({ topics: [{ topic, numPartitions: partitions, configEntries }], waitForLeaders: false });
    // Waiting for leaders fails where the topic itself is not known everywhere yet.
    await until(async () => (await outcome(this.admin.fetchTopicOffsets(topic))).length === partitions);
    return topic;
  }

  // Wait until what was changed can be read: Kafka's broker learns of it after its controller has answered, in order, so
  // that a topic that is made later and has a leader proves most of it, and a second one all of it.
  async settle() {
    for (const _ of [1, 2]) {
      this.settled += 1;
      await this.topic(`settled-${this.settled}`);
    }
  }

  // Three records in each partition, at the times 1000, 2000 and 3000.
  async filled(stem = "t", partitions = 1) {
    const topic = await this.topic(stem, partitions, [{ name: "retention.ms", value: "-1" }]);
    const producer = await this.producer();
    for (let partition = 0; partition < partitions; partition += 1)
      for (const n of [0, 1, 2])
        await producer.send({
          topic,
          messages: [{ partition, key: "key", value: `value ${n}`, timestamp: String(1000 * (n + 1)) }],
        });
    await producer.disconnect();
    return topic;
  }

  async producer(options = {}) {
    const producer = kafka.producer({ maxInFlightRequests: 1, ...options });
    await producer.connect();
    return producer;
  }

  consumer(options = {}) {
    return kafka.consumer({ groupId: this.name("group"), maxWaitTimeInMs: 50, heartbeatInterval: 300, ...options });
  }

  // A member that reads from the beginning; `messages` grows.
  async member(topics, run = {}, options = {}) {
    const consumer = this.consumer(options);
    const messages = [];
    await consumer.connect();
    await consumer.subscribe({ topics, fromBeginning: true });
    const joined = new Promise((resolve) => consumer.on(consumer.events.GROUP_JOIN, resolve));
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message }) => {
        messages.push({
          topic,
          partition,
          offset: message.offset,
          timestamp: message.timestamp,
          key: plain(message.key),
          value: plain(message.value),
          headers: plain(message.headers),
        });
      },
      ...run,
    });
    await joined;
    return { consumer, messages };
  }
}

const sorted = (messages) =>
  [...messages].sort((a, b) => a.topic.localeCompare(b.topic) || a.partition - b.partition || a.offset - b.offset);

async function state(scene) {
  const group = (await scene.admin.describeGroups([scene.name("group")])).groups[0];
  return [group.state, group.members.length];
}

const committed = async (scene, topic) => plain(await scene.admin.fetchOffsets({ groupId: scene.name("group"), topics: [topic] }));

// ---------------------------------------------------------------- scenarios

const scenarios = {
  // ---- admin

  "admin.connect": async () => {
    const another = kafka.admin();
    const connected = await outcome(another.connect());
    await another.disconnect();
    return connected;
  },
  "admin.disconnect": async () => {
    const another = kafka.admin();
    await another.connect();
    return outcome(another.disconnect());
  },
  "admin.listTopics": async (scene) => {
    const topics = [await scene.topic("one"), await scene.topic("two")];
    return (await scene.admin.listTopics()).filter((name) => topics.includes(name)).sort();
  },
  "admin.createTopics": async (scene) => {
    const create = (topic, more) => outcome(scene.admin.createTopics({ topics: [topic], waitForLeaders: false, ...more }));
    const make = (stem, options = {}) => create({ topic: scene.name(stem), ...options });
    return [
      await make("plain", { numPartitions: 2 }),
      await make("plain"),
      await make("default"),
      await make("assigned", { replicaAssignment: [{ partition: 0, replicas: [1] }] }),
      await make("elsewhere", { replicaAssignment: [{ partition: 0, replicas: [7] }] }),
      await make("wide", { numPartitions: 1, replicationFactor: 3 }),
      await make("strange", { configEntries: [{ name: "no.such.setting", value: "1" }] }),
      await create({ topic: scene.name("checked") }, { validateOnly: true }),
      await create({ topic: "no/such/name" }),
    ];
  },
  "admin.deleteTopics": async (scene) => {
    const topic = await scene.topic();
    return [
      await outcome(scene.admin.deleteTopics({ topics: [topic] })),
      await outcome(scene.admin.deleteTopics({ topics: [scene.name("missing")] })),
    ];
  },
  "admin.createPartitions": async (scene) => {
    const topic = await scene.topic();
    const grow = (options, more = {}) => outcome(scene.admin.createPartitions({ topicPartitions: [{ topic, ...options }], ...more }));
    return [
      await grow({ count: 3 }, { validateOnly: true }),
      await grow({ count: 3 }),
      await grow({ count: 4, assignments: [[1]] }),
      await grow({ count: 5, assignments: [[9]] }),
      await grow({ count: 1 }),
    ];
  },
  "admin.fetchTopicMetadata": async (scene) => {
    const topic = await scene.topic("t", 2);
    const everything = await scene.admin.fetchTopicMetadata();
    return [
      await outcome(scene.admin.fetchTopicMetadata({ topics: [topic] })),
      plain(everything.topics.filter(({ name }) => name === topic)),
    ];
  },
  "admin.describeCluster": (scene) => outcome(scene.admin.describeCluster()),
  "admin.fetchOffsets": async (scene) => {
    const topic = await scene.filled("t", 2);
    const groupId = scene.name("group");
    const { consumer } = await scene.member([topic]);
    await consumer.commitOffsets([{ topic, partition: 0, offset: "2" }]);
    await consumer.disconnect();
    return [
      await outcome(scene.admin.fetchOffsets({ groupId, topics: [topic] })),
      await outcome(scene.admin.fetchOffsets({ groupId })),
      await outcome(scene.admin.fetchOffsets({ groupId, topics: [topic], resolveOffsets: true })),
      await outcome(scene.admin.fetchOffsets({ groupId: scene.name("missing"), topics: [topic] })),
    ];
  },
  "admin.fetchTopicOffsets": async (scene) => {
    const topic = await scene.filled("t", 2);
    return [await outcome(scene.admin.fetchTopicOffsets(topic))];
  },
  "admin.fetchTopicOffsetsByTimestamp": async (scene) => {
    const topic = await scene.filled();
    const found = [];
    for (const at of [0, 1000, 1001, 3000, 3001]) found.push(await outcome(scene.admin.fetchTopicOffsetsByTimestamp(topic, at)));
    return found;
  },
  "admin.setOffsets": async (scene) => {
    const topic = await scene.filled();
    const groupId = scene.name("group");
    const set = (partition, offset) => outcome(scene.admin.setOffsets({ groupId, topic, partitions: [{ partition, offset }] }));
    const empty = [await set(0, "2"), await committed(scene, topic)];
    const { consumer } = await scene.member([topic]);
    const running = await set(0, "1");
    await consumer.disconnect();
    return [empty, running];
  },
  "admin.resetOffsets": async (scene) => {
    const topic = await scene.filled();
    const groupId = scene.name("group");
    const reset = async (earliest) => [await outcome(scene.admin.resetOffsets({ groupId, topic, earliest })), await committed(scene, topic)];
    return [await reset(true), await reset(false)];
  },
  "admin.describeConfigs": async (scene) => {
    const topic = await scene.topic("t", 1, [{ name: "segment.bytes", value: "2000000" }]);
    const describe = (type, name, configNames) =>
      outcome(scene.admin.describeConfigs({ resources: [{ type, name, configNames }], includeSynonyms: true }));
    return [
      await describe(ConfigResourceTypes.TOPIC, topic, ["segment.bytes"]),
      await describe(ConfigResourceTypes.BROKER, "1", ["num.partitions"]),
      await describe(ConfigResourceTypes.TOPIC, scene.name("missing")),
    ];
  },
  "admin.alterConfigs": async (scene) => {
    const topic = await scene.topic("t", 1, [{ name: "segment.bytes", value: "2000000" }]);
    const alter = (name, setting, value, validateOnly = false) =>
      outcome(
        scene.admin.alterConfigs({
          validateOnly,
          resources: [{ type: ConfigResourceTypes.TOPIC, name, configEntries: [{ name: setting, value }] }],
        }),
      );
    const resources = ["segment.bytes", "retention.ms"].map((name) => ({
      type: ConfigResourceTypes.TOPIC,
      name: topic,
      configNames: [name],
    }));
    const altered = [
      await alter(topic, "retention.ms", "77"),
      await alter(topic, "retention.ms", "88", true),
      await alter(topic, "retention.ms", "soon"),
      await alter(topic, "no.such.setting", "1"),
      await alter(scene.name("missing"), "retention.ms", "77"),
    ];
    await scene.settle();
    for (const each of resources)
      altered.push(await outcome(scene.admin.describeConfigs({ resources: [each], includeSynonyms: false })));
    return altered;
  },
  "admin.listGroups": async (scene) => {
    const topic = await scene.filled();
    const { consumer } = await scene.member([topic]);
    const listed = (await scene.admin.listGroups()).groups.filter(({ groupId }) => groupId === scene.name("group"));
    await consumer.disconnect();
    return plain(listed);
  },
  "admin.describeGroups": async (scene) => {
    const topic = await scene.filled();
    const { consumer } = await scene.member([topic]);
    const running = await outcome(scene.admin.describeGroups([scene.name("group"), scene.name("missing")]));
    await consumer.disconnect();
    return running;
  },
  "admin.deleteGroups": async (scene) => {
    const topic = await scene.filled();
    const { consumer } = await scene.member([topic]);
    const running = await outcome(scene.admin.deleteGroups([scene.name("group")]));
    await consumer.disconnect();
    return [
      running,
      await outcome(scene.admin.deleteGroups([scene.name("group")])),
      await outcome(scene.admin.deleteGroups([scene.name("missing")])),
    ];
  },
  "admin.createAcls": async (scene) => [
    await outcome(scene.admin.createAcls({ acl: [acl(scene)] })),
    await outcome(scene.admin.createAcls({ acl: [acl(scene, { principal: "alice" })] })),
    await acls(scene),
  ],
  "admin.describeAcls": async (scene) => {
    await scene.admin.createAcls({ acl: [acl(scene), acl(scene, { operation: AclOperationTypes.WRITE })] });
    return [
      await acls(scene),
      await acls(scene, { operation: AclOperationTypes.WRITE }),
      await acls(scene, { resourcePatternType: ResourcePatternTypes.MATCH }),
      await acls(scene, { principal: "User:bob" }),
    ];
  },
  "admin.deleteAcls": async (scene) => {
    await scene.admin.createAcls({ acl: [acl(scene), acl(scene, { operation: AclOperationTypes.WRITE })] });
    const remove = (options) => outcome(scene.admin.deleteAcls({ filters: [filter(scene, options)] }));
    return [await remove({ operation: AclOperationTypes.READ }), await acls(scene), await remove({}), await remove({})];
  },
  "admin.deleteTopicRecords": async (scene) => {
    const topic = await scene.filled();
    const remove = (partition, offset) => outcome(scene.admin.deleteTopicRecords({ topic, partitions: [{ partition, offset }] }));
    return [
      await remove(0, "2"),
      await remove(0, "99"),
      await remove(0, "-1"),
      await remove(7, "1"),
      await outcome(scene.admin.fetchTopicOffsets(topic)),
    ];
  },
  "admin.alterPartitionReassignments": async (scene) => {
    const topic = await scene.topic();
    const assign = (name, partition, replicas) =>
      outcome(scene.admin.alterPartitionReassignments({ topics: [{ topic: name, partitionAssignment: [{ partition, replicas }] }] }));
    return [
      await assign(topic, 0, [1]),
      await assign(topic, 0, [9]),
      await assign(topic, 7, [1]),
      await assign(scene.name("missing"), 0, [1]),
    ];
  },
  "admin.listPartitionReassignments": async (scene) => {
    const topic = await scene.topic();
    return [
      await outcome(scene.admin.listPartitionReassignments({ topics: [{ topic, partitions: [0] }] })),
      await outcome(scene.admin.listPartitionReassignments({})),
    ];
  },

  // ---- producer

  "producer.connect": async () => {
    const producer = kafka.producer();
    const connected = await outcome(producer.connect());
    await producer.disconnect();
    return connected;
  },
  "producer.disconnect": async (scene) => {
    const topic = await scene.topic();
    const producer = await scene.producer();
    return [await outcome(producer.disconnect()), await outcome(producer.send({ topic, messages: [{ value: "late" }] }))];
  },
  "producer.send": async (scene) => {
    const topic = await scene.topic("t", 2);
    const messages = [{ partition: 1, key: "key", value: "value", headers: { name: "text" }, timestamp: THEN }];
    const found = [];
    for (const [options, acks] of [[{}, -1], [{}, 1], [{}, 0], [{ idempotent: true }, -1]]) {
      const producer = await scene.producer(options);
      found.push(await outcome(producer.send({ topic, acks, messages })));
      await producer.disconnect();
    }
    const producer = await scene.producer();
    found.push(await outcome(producer.send({ topic, messages: [{ partition: 0, value: Buffer.alloc(2000000) }] })));
    found.push(await outcome(producer.send({ topic: "no/such/name", messages })));
    await producer.disconnect();
    return found;
  },
  "producer.sendBatch": async (scene) => {
    const topics = [await scene.topic("one"), await scene.topic("two")];
    const producer = await scene.producer();
    const topicMessages = topics.map((topic) => ({ topic, messages: [{ partition: 0, value: "value", timestamp: THEN }] }));
    const sent = await outcome(producer.sendBatch({ topicMessages }));
    await producer.disconnect();
    return sent.sort((a, b) => a.topicName.localeCompare(b.topicName));
  },
  "producer.transaction": async (scene) => {
    const topic = await scene.topic();
    const older = await transactional(scene);
    const transaction = await older.transaction();
    await transaction.send({ topic, messages: [{ partition: 0, value: "lost", timestamp: THEN }] });
    // A newer producer of the same id ends the older one's transaction.
    const newer = await transactional(scene);
    const next = await newer.transaction();
    const found = [await outcome(transaction.commit()), await outcome(next.abort())];
    await older.disconnect();
    await newer.disconnect();
    return found;
  },

  // ---- transaction

  "transaction.send": async (scene) => {
    const topic = await scene.topic();
    const [producer, transaction] = await begun(scene);
    const sent = await outcome(transaction.send({ topic, messages: [{ partition: 0, value: "value", timestamp: THEN }] }));
    const ended = await outcome(transaction.commit());
    await producer.disconnect();
    return [sent, ended];
  },
  "transaction.sendBatch": async (scene) => {
    const topic = await scene.topic();
    const [producer, transaction] = await begun(scene);
    const topicMessages = [{ topic, messages: [{ partition: 0, value: "value", timestamp: THEN }] }];
    const sent = await outcome(transaction.sendBatch({ topicMessages }));
    const ended = await outcome(transaction.commit());
    await producer.disconnect();
    return [sent, ended];
  },
  "transaction.sendOffsets": async (scene) => {
    const topic = await scene.filled();
    const [producer, transaction] = await begun(scene);
    const topics = [{ topic, partitions: [{ partition: 0, offset: "2" }] }];
    const sent = await outcome(transaction.sendOffsets({ consumerGroupId: scene.name("group"), topics }));
    const ended = await outcome(transaction.commit());
    await producer.disconnect();
    const found = await until(async () => {
      const offsets = await committed(scene, topic);
      return offsets[0].partitions[0].offset === "-1" ? null : offsets;
    });
    return [sent, ended, found];
  },
  "transaction.commit": async (scene) => {
    const topic = await scene.topic();
    const [producer, transaction] = await begun(scene);
    await transaction.send({ topic, messages: [{ partition: 0, value: "first", timestamp: THEN }] });
    const first = await outcome(transaction.commit());
    const second = await producer.transaction();
    await second.send({ topic, messages: [{ partition: 0, value: "second", timestamp: THEN }] });
    const ends = [first, await outcome(second.commit()), await outcome(second.commit())];
    await producer.disconnect();
    return [ends, await valuesRead(scene, topic, 2)];
  },
  "transaction.abort": async (scene) => {
    const topic = await scene.topic();
    const [producer, transaction] = await begun(scene);
    await transaction.send({ topic, messages: [{ partition: 0, value: "never", timestamp: THEN }] });
    const aborted = await outcome(transaction.abort());
    const second = await producer.transaction();
    await second.send({ topic, messages: [{ partition: 0, value: "ever", timestamp: THEN }] });
    const ended = await outcome(second.commit());
    await producer.disconnect();
    return [aborted, ended, await valuesRead(scene, topic, 1)];
  },

  // ---- consumer

  "consumer.connect": async (scene) => {
    const consumer = scene.consumer();
    const connected = await outcome(consumer.connect());
    await consumer.disconnect();
    return connected;
  },
  "consumer.disconnect": async (scene) => {
    const topic = await scene.filled();
    const { consumer } = await scene.member([topic]);
    const running = await state(scene);
    return [running, await outcome(consumer.disconnect()), await state(scene)];
  },
  "consumer.subscribe": async (scene) => {
    for (const stem of ["one", "two", "other"]) await scene.filled(stem);
    const pattern = new RegExp(`^${scene.name("").replaceAll(".", "[.]")}(one|two)$`);
    const { consumer, messages } = await scene.member([pattern]);
    await until(() => messages.length === 6);
    await consumer.disconnect();
    return sorted(messages);
  },
  "consumer.run": async (scene) => {
    const topic = await scene.filled("t", 2);
    const batches = [];
    const eachBatch = async ({ batch, resolveOffset, heartbeat, commitOffsetsIfNecessary, uncommittedOffsets }) => {
      for (const message of batch.messages) resolveOffset(message.offset);
      await heartbeat();
      await commitOffsetsIfNecessary(uncommittedOffsets());
      batches.push([batch.partition, batch.messages.map(({ offset }) => offset), batch.highWatermark, batch.offsetLag()]);
    };
    const { consumer } = await scene.member([topic], { eachMessage: undefined, eachBatch });
    await until(() => batches.length >= 2);
    await consumer.disconnect();
    return [batches.sort((a, b) => a[0] - b[0]), await committed(scene, topic)];
  },
  "consumer.stop": async (scene) => {
    const topic = await scene.filled();
    const { consumer } = await scene.member([topic]);
    const stopped = [await outcome(consumer.stop()), await state(scene)];
    await consumer.disconnect();
    return stopped;
  },
  "consumer.commitOffsets": async (scene) => {
    const topic = await scene.filled();
    const { consumer, messages } = await scene.member([topic]);
    await until(() => messages.length === 3);
    const commit = (offset, metadata) => outcome(consumer.commitOffsets([{ topic, partition: 0, offset, metadata }]));
    const found = [await commit("2", "note"), await committed(scene, topic), await commit("2", "x".repeat(5000))];
    await consumer.disconnect();
    return found;
  },
  "consumer.seek": async (scene) => {
    const topic = await scene.filled();
    const { consumer, messages } = await scene.member([topic]);
    await until(() => messages.length === 3);
    consumer.seek({ topic, partition: 0, offset: "1" });
    await until(() => messages.length === 5);
    consumer.seek({ topic, partition: 0, offset: "99" });
    await until(() => messages.length === 8);
    await consumer.disconnect();
    return messages;
  },
  "consumer.describeGroup": async (scene) => {
    const topic = await scene.filled();
    const { consumer } = await scene.member([topic]);
    const described = await outcome(consumer.describeGroup());
    await consumer.disconnect();
    return described;
  },
};

// A partition that pauses itself after its first message gives nothing more until it is resumed.
async function paused(scene) {
  const topic = await scene.filled();
  const read = [];
  const { consumer } = await scene.member([topic], {
    eachMessage: async ({ message, pause }) => {
      read.push(message.offset);
      if (read.length === 1) pause();
    },
  });
  await until(() => consumer.paused().length === 1);
  return { topic, read, consumer };
}

scenarios["consumer.pause"] = async (scene) => {
  const { consumer, read } = await paused(scene);
  const topics = plain(consumer.paused());
  await consumer.disconnect();
  return [read, topics];
};
scenarios["consumer.resume"] = async (scene) => {
  const { consumer, read, topic } = await paused(scene);
  consumer.resume([{ topic }]);
  await until(() => read.length >= 3);
  await consumer.disconnect();
  return [read, plain(consumer.paused())];
};

async function transactional(scene) {
  return scene.producer({ transactionalId: scene.name("txn"), idempotent: true });
}

async function begun(scene) {
  const producer = await transactional(scene);
  return [producer, await producer.transaction()];
}

// KafkaJS reads what is committed unless it is told otherwise.
async function valuesRead(scene, topic, count) {
  const { consumer, messages } = await scene.member([topic]);
  await until(() => messages.length >= count);
  await consumer.disconnect();
  return messages;
}

function acl(scene, options = {}) {
  return {
    resourceType: AclResourceTypes.TOPIC,
    resourceName: scene.name(),
    resourcePatternType: ResourcePatternTypes.LITERAL,
    principal: "User:alice",
    host: "*",
    operation: AclOperationTypes.READ,
    permissionType: AclPermissionTypes.ALLOW,
    ...options,
  };
}

function filter(scene, options = {}) {
  return {
    resourceType: AclResourceTypes.TOPIC,
    resourceName: scene.name(),
    resourcePatternType: ResourcePatternTypes.ANY,
    operation: AclOperationTypes.ANY,
    permissionType: AclPermissionTypes.ANY,
    ...options,
  };
}

async function acls(scene, options = {}) {
  await scene.settle();
  const found = await outcome(scene.admin.describeAcls(filter(scene, options)));
  for (const resource of found.resources || []) resource.acls.sort((a, b) => a.operation - b.operation);
  return found;
}

// ---------------------------------------------------------------- the program

// Scenarios disturb each other in nothing, and some wait long: those two make KafkaJS wait for fetches that stay empty.
const AT_ONCE = 4;
const SLOW = new Set(["admin.setOffsets", "admin.resetOffsets"]);
const OWN_STATE = "the client's own state";
const LOCAL = {
  "admin.events": "names of the client's own events",
  "admin.logger": "the client's own logger",
  "admin.on": "the client's own events",
  "producer.events": "names of the client's own events",
  "producer.isIdempotent": OWN_STATE,
  "producer.logger": "the client's own logger",
  "producer.on": "the client's own events",
  "transaction.isActive": OWN_STATE,
  "consumer.events": "names of the client's own events",
  "consumer.logger": "the client's own logger",
  "consumer.on": "the client's own events",
  "consumer.paused": OWN_STATE,
};

// What there is to call. A transaction has to be begun before its methods can be seen.
async function methods(scene) {
  const [producer, transaction] = await begun(scene);
  const objects = { admin: scene.admin, producer, transaction, consumer: scene.consumer() };
  const found = Object.entries(objects).flatMap(([name, object]) => Object.keys(object).map((each) => `${name}.${each}`));
  await transaction.abort();
  await producer.disconnect();
  return found;
}

async function run() {
  const left = Object.entries(scenarios).sort(([a], [b]) => SLOW.has(b) - SLOW.has(a));
  const work = async () => {
    for (let next = left.shift(); next; next = left.shift()) {
      const [method, scenario] = next;
      const scene = new Scene(method);
      await scene.admin.connect();
      print({ event: "outcome", method, outcome: await outcome(scenario(scene)) });
      await scene.admin.disconnect();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  print({ event: "methods", methods: await methods(new Scene("methods")), local: LOCAL });
}

run().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
