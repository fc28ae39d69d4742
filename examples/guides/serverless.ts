// #region bus
import { createBus, kafkaRecords, sqsRecords } from "sagabox";
import type { LambdaKafkaEvent, LambdaRecord, LambdaSqsEvent } from "sagabox";
import { OrderPlaced } from "./contracts.ts";

export const bus = createBus({ service: "shop", outbox: { optimistic: false } });
bus.on(OrderPlaced, { consumer: "billing" }, async ({ data }, { tx }) => {
  await tx.query("insert into guide_bill (order_id, cents) values ($1, $2)", [data.orderId, data.cents]);
});
// #endregion bus

// In an application: from "next/server".
import { after } from "./next-after.ts";

// #region cron
export async function GET(request: Request): Promise<Response> {
  const secret = process.env["CRON_SECRET"];
  const isAllowed = secret !== undefined && request.headers.get("authorization") === `Bearer ${secret}`;
  if (!isAllowed) return new Response("unauthorized", { status: 401 });
  return Response.json(await bus.drain({ deadline: "45s" }));
}
// #endregion cron

// #region after
export async function POST(request: Request): Promise<Response> {
  const order = (await request.json()) as { orderId: string; cents: number }; // publish checks it
  const { id } = await bus.transaction((tx) => tx.publish(OrderPlaced, order));
  after(() => bus.drain({ deadline: "20s" })); // `after` of next/server
  return Response.json({ id }, { status: 202 });
}
// #endregion after

// #region instrumentation
export async function register(): Promise<void> {
  if (process.env["NEXT_RUNTIME"] !== "nodejs") return; // not in the edge runtime
  await bus.run();
  process.once("SIGTERM", () => void bus.stop());
}
// #endregion instrumentation

// #region schedule
interface LambdaContext {
  getRemainingTimeInMillis(): number;
}

export async function onSchedule(_event: unknown, context: LambdaContext) {
  return bus.drain({ deadline: context.getRemainingTimeInMillis() - 2_000 });
}
// #endregion schedule

// #region records
async function handleInOrder(records: readonly LambdaRecord[]) {
  const blocked = new Set<string>();
  const batchItemFailures: Pick<LambdaRecord, "itemIdentifier">[] = [];
  for (const record of records) {
    const { group, itemIdentifier } = record;
    // Behind a failed record of its group, a record must wait.
    const isHandled = !blocked.has(group ?? "") && (await handleRecord(record));
    if (isHandled) continue;
    if (group !== null) blocked.add(group);
    batchItemFailures.push({ itemIdentifier });
  }
  await bus.drain({ deadline: "10s" }); // sends what the handlers published
  return { batchItemFailures };
}

async function handleRecord(record: LambdaRecord): Promise<boolean> {
  try {
    await bus.handle(record);
    return true;
  } catch (error) {
    console.error(error);
    return false;
  }
}

export const onSqs = (event: LambdaSqsEvent) => handleInOrder(sqsRecords(event));
export const onKafka = (event: LambdaKafkaEvent) => handleInOrder(kafkaRecords(event));
// #endregion records

// #region rabbitmq
import { type LambdaRabbitmqEvent, rabbitmqRecords } from "sagabox";

export async function onRabbitmq(event: LambdaRabbitmqEvent): Promise<void> {
  const { batchItemFailures } = await handleInOrder(rabbitmqRecords(event));
  if (batchItemFailures.length > 0) throw new Error("Amazon MQ repeats the whole batch.");
}
// #endregion rabbitmq
