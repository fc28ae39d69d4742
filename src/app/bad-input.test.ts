import { expect, test } from "vitest";
import { z } from "zod";
import { event } from "../message/index.ts";
import type { Bus } from "./bus.ts";
import type { BusOptions } from "./bus-options.ts";
import { createBus } from "./create-bus.ts";

// Nobody listens there: whatever is refused here was refused before anything connected.
const base = { service: "shop", database: "postgres://127.0.0.1:1/nowhere", log: false } as const;
const OrderPlaced = event("order.placed", { schema: z.object({ orderId: z.string() }) });

/** As a caller without the compiler sees it. */
interface Untyped {
  run(options: object): Promise<unknown>;
  transaction(work: () => Promise<void>, options: object): Promise<unknown>;
  publish(tx: unknown, contract: unknown, data: unknown, options?: object): Promise<unknown>;
  publishAll(tx: unknown, ...messages: unknown[]): Promise<unknown>;
  readonly deadLetters: { list(filter: object): Promise<unknown> };
  readonly inbox: { process(message: unknown, handler: unknown): Promise<unknown> };
}

function untyped(): Untyped {
  const bus: Bus = createBus(base);
  return bus as unknown as Untyped;
}

function creating(options: object): () => Bus {
  return () => createBus({ ...base, ...options } as BusOptions);
}

function refusal(code: string, message: RegExp): unknown {
  return expect.objectContaining({ code, message: expect.stringMatching(message) as string });
}

test.each<[what: string, call: (bus: Untyped) => Promise<unknown>, hint: string]>([
  ["run", (bus) => bus.run({ prot: 8000 }), "port"],
  ["transaction", (bus) => bus.transaction(async () => {}, { isolaton: "serializable" }), "isolation"],
  ["deadLetters.list", (bus) => bus.deadLetters.list({ consumr: "billing" }), "consumer"],
  ["publish", (bus) => bus.publish({}, OrderPlaced, { orderId: "a" }, { dely: 1 }), "delay"],
])("G11: a misspelt option of %s is refused with the one that was meant", async (_, call, hint) => {
  const meant = new RegExp(`Did you mean "${hint}"`);
  await expect(call(untyped())).rejects.toThrowError(refusal("OPTIONS_UNKNOWN_KEY", meant) as Error);
});

test("G11: a log level that does not exist is refused with those that do", () => {
  expect(creating({ log: "loud" })).toThrowError(
    refusal("OPTIONS_INVALID", /log must be one of "debug"/) as Error,
  );
  expect(creating({ log: "warn" })).not.toThrow();
});

test.each(["serialisable", "serializable; drop table orders", "", null, 3])(
  "an isolation level %j never becomes SQL",
  async (isolation) => {
    const asked = untyped().transaction(async () => {}, { isolation });
    await expect(asked).rejects.toThrowError(refusal("OPTIONS_INVALID", /isolation must be one of/) as Error);
  },
);

test.each([undefined, null, "order.placed", {}, { kind: "event", name: "order.placed" }, { orderId: "a" }])(
  "publishing %j in the place of a contract is refused",
  async (contract) => {
    const published = untyped().publish({}, contract, { orderId: "a" });
    await expect(published).rejects.toThrowError(
      refusal("CONTRACT_INVALID", /event\(\), command\(\)/) as Error,
    );
  },
);

test.each([undefined, null, "order.placed", OrderPlaced])(
  "publishAll refuses %j, which is no message",
  async (one) => {
    await expect(untyped().publishAll({}, one)).rejects.toThrowError(
      refusal("OPTIONS_INVALID", /message\(contract, data\)/) as Error,
    );
  },
);

const foreign = { id: "a", consumer: "billing", topic: "orders", type: "order.placed", data: {} };

test.each<[message: unknown, rule: RegExp]>([
  [undefined, /takes a message/],
  [{ ...foreign, consumer: undefined }, /consumer/],
  [{ ...foreign, consumer: "" }, /consumer/],
  [{ ...foreign, consumer: "  " }, /consumer/],
  [{ ...foreign, consumer: "bill\u0000ing" }, /consumer/],
  [{ ...foreign, consumer: "bill\ning" }, /consumer/],
  [{ ...foreign, consumer: "x".repeat(256) }, /consumer/],
  [{ ...foreign, topic: undefined }, /topic/],
  [{ ...foreign, type: 7 }, /type/],
])("D7: the inbox refuses %j before it looks at the database", async (message, rule) => {
  const processed = untyped().inbox.process(message, () => undefined);
  await expect(processed).rejects.toThrowError(refusal("OPTIONS_INVALID", rule) as Error);
});

test("D7: a handler that is no function is refused", async () => {
  const processed = untyped().inbox.process(foreign, { orderId: "a" });
  await expect(processed).rejects.toThrowError(refusal("OPTIONS_INVALID", /must be a function/) as Error);
});

test("D7: the options of the stand-alone inbox are checked when the bus is made", () => {
  expect(creating({ inbox: { idof: () => "a" } })).toThrowError(
    refusal("OPTIONS_UNKNOWN_KEY", /Did you mean "idOf"/) as Error,
  );
  expect(creating({ inbox: { idOf: "x-id" } })).toThrowError(
    refusal("OPTIONS_INVALID", /inbox\.idOf/) as Error,
  );
  expect(creating({ inbox: { deadline: "soon" } })).toThrowError(
    refusal("OPTIONS_INVALID", /inbox\.deadline/) as Error,
  );
});
