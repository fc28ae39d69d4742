import { command, createBus, permanent, type Bus, type Transport, event } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { toWire } from "../../src/transport/index.ts";
import { temporaryDatabase } from "./database.ts";
import { aMessage } from "./messages.ts";

const Reserve = command("ask.reserve", {
  schema: z.object({ sku: z.string() }),
  reply: z.object({ reservationId: z.string() }),
});

async function busOn(service: string, transport: Transport): Promise<Bus> {
  const { pool } = await temporaryDatabase({ max: 30 });
  const bus = createBus({ service, database: pool, transport, log: false });
  onTestFinished(async () => void (await bus.stop()));
  await bus.migrate();
  return bus;
}

/** Request and reply between two services that share nothing but a broker. */
export function requestSuite(transports: () => readonly [Transport, Transport]): void {
  test("B8: a command is asked, answered and refused over the broker, between databases of their own", async () => {
    const [one, two] = transports();
    const asking = await busOn("shop", one);
    const answering = await busOn("stock", two);
    answering.on(Reserve, { consumer: "stock" }, ({ data: { sku } }) => {
      if (sku === "none") throw permanent("the shelf is empty");
      return { reservationId: `r-${sku}` };
    });
    await answering.run();
    await asking.run();
    const ask = (sku: string) => asking.request(Reserve, { sku }, { timeout: "30s" });
    expect(await ask("first")).toEqual({ reservationId: "r-first" });
    const many = Array.from({ length: 30 }, (_, n) => ask(`${n}`));
    expect((await Promise.all(many)).map(({ reservationId }) => reservationId)).toEqual(
      many.map((_, n) => `r-${n}`),
    );
    await expect(ask("none")).rejects.toMatchObject({
      code: "REQUEST_FAILED",
      reason: "rejected",
      message: expect.stringContaining("the shelf is empty"),
    });
  });
}

const Sent = event("story.stranger.sent", { schema: z.object({ n: z.number(), filler: z.string() }) });

/** A foreign message so large that the broker takes no copy of it with our headers. */
export function unretryableSuite(
  broker: () => {
    readonly transport: Transport;
    /** Puts it at the broker as large as the broker takes it. */
    readonly putLarge: (bodyOf: (filler: string) => Buffer) => Promise<void>;
  },
): void {
  test("a message of which no copy can be made is a dead letter when it fails, and blocks no other message", async () => {
    const { transport, putLarge } = broker();
    const { pool } = await temporaryDatabase({ max: 30 });
    const bus = createBus({ service: "shop", database: pool, transport, log: false });
    onTestFinished(async () => void (await bus.stop()));
    await bus.migrate();
    const seen: number[] = [];
    const how = { consumer: "books", ordered: false, concurrency: 1, from: "beginning" } as const;
    bus.on(Sent, { ...how, retry: { maxAttempts: 3, firstDelay: 50 } }, ({ data }) => {
      seen.push(data.n);
      if (data.n === 1) throw new Error("the ledger is closed");
    });
    await bus.run();
    await putLarge((filler) => {
      const data = JSON.stringify({ n: 1, filler });
      return toWire(
        aMessage({ type: "story.stranger.sent", topic: "events.story.stranger.sent", key: null, data }),
      ).body;
    });
    await expect.poll(() => seen, { timeout: 20_000 }).toEqual([1]);
    await bus.transaction((tx) => tx.publish(Sent, { n: 2, filler: "" }));
    await expect.poll(() => seen, { timeout: 20_000 }).toEqual([1, 2]);
    const { rows } = await pool.query("select reason, error_message from sagabox.dead_letter");
    expect(rows).toEqual([
      { reason: "rejected", error_message: expect.stringContaining("the ledger is closed") },
    ]);
  });
}

const Placed = event("story.order.placed", { schema: z.object({ n: z.number() }), key: () => "one key" });

export interface SeenDeadLetter {
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** A keyed message that never works: it leaves the broker, is retried out of Postgres, and dies in both places. */
export function deadLetterSuite(
  broker: () => { readonly transport: Transport; readonly letters: () => Promise<readonly SeenDeadLetter[]> },
): void {
  test("E3, rule 18: a keyed message that used up its attempts is a letter in Postgres and one at the broker", async () => {
    const { transport, letters } = broker();
    const { pool } = await temporaryDatabase({ max: 30 });
    const bus = createBus({ service: "shop", database: pool, transport, log: false });
    onTestFinished(async () => void (await bus.stop()));
    await bus.migrate();
    const seen: string[] = [];
    bus.on(
      Placed,
      { consumer: "books", retry: { maxAttempts: 3, firstDelay: 50 } },
      ({ data }, { attempt }) => {
        seen.push(`${data.n}#${attempt}`);
        if (data.n === 1) throw new Error("the ledger is closed");
      },
    );
    await bus.run();
    await bus.transaction((tx) => tx.publish(Placed, { n: 1 }, { headers: { "x-tenant": "acme" } }));
    await expect.poll(() => seen[0], { timeout: 20_000 }).toBe("1#1");
    await bus.transaction((tx) => tx.publish(Placed, { n: 2 }));
    await expect.poll(() => seen, { timeout: 20_000 }).toEqual(["1#1", "1#2", "1#3", "2#1"]);
    await expect.poll(async () => (await letters()).length, { timeout: 20_000 }).toBe(1);
    const [letter] = await letters();
    expect(JSON.parse(letter?.body ?? "")).toMatchObject({ payload: { data: { n: 1 } } });
    expect(letter?.headers).toMatchObject({
      "x-tenant": "acme",
      error_message: "the ledger is closed",
      retry_count: "2",
      consumer_group: "books",
      source_topic: "events.story.order.placed",
    });
    const kept = await pool.query("select reason, attempts from sagabox.dead_letter");
    expect(kept.rows).toEqual([{ reason: "exhausted", attempts: 3 }]);
  });
}

/** What the requirements call the cases of the transport suite; all of them prove that there is one (B1). */
const rows: Readonly<Record<string, string>> = {
  "each message of a batch gets its own outcome, in the order of the batch": "B1, B10",
  "publishing to a topic without readers succeeds": "B1, B10",
  "every group gets its own copy": "B1, B7",
  "competing members share the messages of a group, each delivered to one, in order per key": "B1, B7",
};

export function caseTitle(name: string, ...more: readonly string[]): string {
  return `${[rows[name] ?? "B1", ...more].join(", ")}: ${name}`;
}
