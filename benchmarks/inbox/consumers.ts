import type { Bench } from "../harness/bench.ts";
import { countStatements } from "../harness/usage.ts";
import { createBus, type Bus } from "../../src/index.ts";
import type { Observer } from "../../src/telemetry/index.ts";
import { MemoryTransport } from "../../src/testing/index.ts";
import { orderMessage } from "../product/order-message.ts";
import { OrderPlaced } from "../product/order-placed.ts";
import { BUSINESS_INSERT, BUSINESS_TABLE, businessRow } from "../references/business.ts";

/** The ways a handler can be written. */
export type Style = "each" | "statement" | "pipelined" | "bulk";

const AT_ONCE = 8;
const BATCH = { size: 50 };

/** A bus with one consumer, fed by a broker in memory: what is left is validation, deduplication, effect and settling. */
export async function consumers(bench: Bench, style: Style) {
  const place = await bench.server.database(`inbox_${style}`);
  await place.admin.query(BUSINESS_TABLE);
  const pool = place.pool(20);
  const statements = countStatements(pool);
  const transport = new MemoryTransport({ record: false });
  const counter = new Counter();
  const bus = createBus({ service: "bench", database: pool, transport, log: "error", observers: [counter] });
  register(bus, style);
  await bus.migrate();
  await bus.run();
  let handled = 0;
  let sent = 0;
  return {
    async rate(count: number): Promise<number> {
      await place.admin.query("truncate business, sagabox.consumer_inbox");
      const messages = Array.from({ length: count }, (_, n) => orderMessage(handled + n));
      const before = statements.count();
      const done = counter.reaches(handled + count);
      const began = performance.now();
      await transport.publish(messages, { signal: new AbortController().signal });
      await done;
      const rate = (count / (performance.now() - began)) * 1000;
      handled += count;
      sent += statements.count() - before;
      return rate;
    },
    statementsPerMessage: () => sent / handled,
    async close(): Promise<void> {
      await bus.stop();
      await place.drop();
    },
  };
}

function register(bus: Bus, style: Style): void {
  const common = { consumer: "billing", concurrency: AT_ONCE };
  if (style === "each" || style === "pipelined") {
    const options = style === "each" ? common : { ...common, batch: BATCH };
    bus.on(OrderPlaced, options, async ({ data }, { tx }) => {
      await tx.query(BUSINESS_INSERT, createRow(data.orderId));
    });
  } else if (style === "statement") {
    bus.on(OrderPlaced, {
      ...common,
      statement: ({ data }) => ({ text: ONCE, params: createRow(data.orderId) }),
    });
  } else {
    bus.onBatch(OrderPlaced, { ...common, batch: BATCH }, async (messages, { tx }) => {
      const rows = messages.map(({ data }) => createRow(data.orderId));
      await tx.query(
        BULK,
        [0, 1, 2].map((column) => rows.map((row) => row[column])),
      );
    });
  }
}

function createRow(orderId: string): [customer: string, total: number, note: string] {
  return businessRow(Number(orderId.slice(-9)));
}

const ONCE = "insert into business (customer, total, note) select $1::text, $2::numeric, $3::text from fresh";
const BULK =
  "insert into business (customer, total, note) select * from unnest($1::text[], $2::numeric[], $3::text[])";

/** Counts what was handled and committed. */
class Counter implements Observer {
  #processed = 0;
  #waiting: { readonly end: number; readonly resolve: () => void } | undefined;

  readonly emit: Observer["emit"] = (name) => {
    if (name !== "consumer.processed") return;
    this.#processed += 1;
    if (this.#waiting !== undefined && this.#processed >= this.#waiting.end) this.#waiting.resolve();
  };

  reaches(end: number): Promise<void> {
    return new Promise((resolve) => (this.#waiting = { end, resolve }));
  }
}
