// KafkaJS as the interop tests drive it: node client.js produce|consume|member JSON.
// Prints one JSON object per event. A member runs until standard input closes, then leaves cleanly.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const print = (event) => process.stdout.write(JSON.stringify(event) + "\n");
const text = (buffer) => (buffer === null || buffer === undefined ? null : buffer.toString());
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };

const [, , verb, argument] = process.argv;
const options = JSON.parse(argument);
const kafka = new Kafka({
  clientId: options.client_id || "kafkajs",
  brokers: [options.bootstrap],
  logLevel: logLevel.ERROR,
  retry: { initialRetryTime: 50, retries: 20 },
});

function record(partition, message) {
  const headers = Object.entries(message.headers || {}).map(([key, value]) => [key, text(value)]);
  print({
    event: "record",
    partition,
    offset: Number(message.offset),
    timestamp: Number(message.timestamp),
    key: text(message.key),
    value: text(message.value),
    headers,
  });
}

async function produce() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const messages = options.records.map((each) => ({
    partition: each.partition,
    key: each.key,
    value: each.value,
    headers: Object.fromEntries(each.headers || []),
    ...(each.timestamp == null ? {} : { timestamp: String(each.timestamp) }),
  }));
  const answers = await producer.send({
    topic: options.topic,
    acks: -1,
    compression: codecs[options.compression || "none"],
    messages,
  });
  const next = new Map(answers.map((answer) => [answer.partition, Number(answer.baseOffset)]));
  for (const message of messages) {
    const offset = next.get(message.partition);
    next.set(message.partition, offset + 1);
    print({ event: "produced", partition: message.partition, offset });
  }
  await producer.disconnect();
}

async function consume() {
  // KafkaJS has no consumer without a group: a group of its own reads everything from the start.
  const consumer = kafka.consumer({ groupId: `reader-${process.pid}-${Date.now()}`, maxWaitTimeInMs: 100 });
  await consumer.connect();
  await consumer.subscribe({ topics: [options.topic], fromBeginning: true });
  let left = options.count;
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        record(partition, message);
        left -= 1;
        if (left === 0) resolve();
      },
    });
    if (left === 0) resolve();
  });
  await consumer.disconnect();
}

async function member() {
  const consumer = kafka.consumer({
    groupId: options.group,
    sessionTimeout: options.session_timeout_ms || 10000,
    rebalanceTimeout: 10000,
    heartbeatInterval: 300,
    maxWaitTimeInMs: 100,
  });
  consumer.on(consumer.events.GROUP_JOIN, (event) => {
    const mine = (event.payload.memberAssignment[options.topic] || []).slice().sort((a, b) => a - b);
    print({ event: "assigned", partitions: mine });
  });
  consumer.on(consumer.events.CRASH, (event) => {
    print({ event: "crashed", message: String(event.payload.error) });
    // It starts again by itself after errors that may pass, such as a broker that is away.
    if (!event.payload.restart) process.exit(1);
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [options.topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      for (const message of batch.messages) {
        record(batch.partition, message);
        resolveOffset(message.offset);
      }
      const next = String(BigInt(batch.lastOffset()) + 1n);
      await consumer.commitOffsets([{ topic: batch.topic, partition: batch.partition, offset: next }]);
      print({ event: "committed" });
      await heartbeat();
    },
  });
  process.stdin.resume();
  await new Promise((resolve) => process.stdin.on("end", resolve));
  await consumer.disconnect();
  print({ event: "left" });
}

({ produce, consume, member })[verb]().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
