// KafkaJS commits transactions one after the other: node kafkajs_transactions.js BOOTSTRAP ID TOPIC COUNT.
const { Kafka, logLevel } = require("kafkajs");

const [, , bootstrap, transactionalId, topic, count] = process.argv;
const kafka = new Kafka({
  clientId: "kafkajs",
  brokers: [bootstrap],
  logLevel: logLevel.NOTHING,
  requestTimeout: 2000,
  retry: { initialRetryTime: 20, maxRetryTime: 100, retries: 30 },
});

async function main() {
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (let n = 0; n < Number(count); n++) {
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ value: `${n}`, partition: 0 }] });
    await transaction.commit();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await producer.disconnect();
}

main().then(
  () => process.exit(0),
  (error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  },
);
