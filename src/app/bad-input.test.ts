import { on } from "node:events";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import { event } from "../message/index.ts";
import type { Bus } from "./bus.ts";
import type { BusOptions } from "./bus-options.ts";
import { createBus } from "./create-bus.ts";

// No server listens on this port, so every refusal below happens before a connection is opened.
const base = { service: "shop", database: "postgres://127.0.0.1:1/nowhere", log: false } as const;
const OrderPlaced = event("order.placed", { schema: z.object({ orderId: z.string() }) });

/** As a caller without the compiler sees it. */
interface Untyped {
  run(options: object): Promise<unknown>;
  transaction(work?: unknown, options?: object): Promise<unknown>;
  on(...given: unknown[]): void;
  onBatch(...given: unknown[]): void;
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

test("G11: a SAGABOX_ variable that does not exist is reported with the one that was meant", async () => {
  vi.stubEnv("SAGABOX_PRT", "8000");
  const text = "SAGABOX_PRT is set, but sagabox does not read it. Did you mean SAGABOX_PORT?";
  const warnings = on(process, "warning"); // other variables and packages may cause warnings too
  creating({})();
  for await (const [warning] of warnings as AsyncIterable<[Error]>) {
    if (!warning.message.startsWith("SAGABOX_PRT")) continue;
    expect(warning).toMatchObject({ name: "SagaboxWarning", message: text });
    break;
  }
});

test("G11: an unknown log level is refused with the list of known levels", () => {
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

test("D7: a handler that is not a function is refused", async () => {
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

test.each<[field: string, value: unknown]>([
  ["transport", {}],
  ["transport", "kafka"],
  ["transport", { open() {}, publish() {}, subscribe() {}, close() {} }],
  ["routing", "orders"],
  ["observers", [1]],
  ["observers", [{ tell() {} }]],
  ["observers", { emit() {} }],
  ["outbox.retry", null],
])("G11: %s is refused by its name when it is %j", (field, value) => {
  const [name = "", inner] = field.split(".");
  const options = { [name]: inner === undefined ? value : { [inner]: value } };
  const named = new RegExp(`^${field.replace(".", "\\.")} `);
  expect(creating(options)).toThrowError(refusal("OPTIONS_INVALID", named) as Error);
});

test.each([undefined, null, { publish: true }])("bus.transaction refuses %j as its work", async (work) => {
  const refused = refusal("OPTIONS_INVALID", /bus\.transaction must be a function/) as Error;
  await expect(untyped().transaction(work)).rejects.toThrowError(refused);
});

test.each(["on", "onBatch"] as const)("G11: %s names the argument that is wrong", (method) => {
  const given =
    (...values: unknown[]) =>
    () =>
      untyped()[method](...values);
  const handler = (): void => undefined;
  expect(given()).toThrowError(refusal("CONTRACT_INVALID", /circular import/) as Error);
  expect(given(OrderPlaced)).toThrowError(refusal("OPTIONS_INVALID", /order\.placed.*consumer/) as Error);
  expect(given(OrderPlaced, handler)).toThrowError(refusal("OPTIONS_INVALID", /consumer/) as Error);
  for (const [name, value] of [
    ["classify", "permanent"],
    ["idOf", "x-id"],
    ["retry", null],
  ] as const) {
    const wrong = given(OrderPlaced, { consumer: "billing", [name]: value }, handler);
    const named = new RegExp(`^consumer "billing"\\.${name} must be`);
    expect(wrong).toThrowError(refusal("OPTIONS_INVALID", named) as Error);
  }
});

test.each([[null], [["a"]], ["tenant"]])("publish refuses %j as headers", async (headers) => {
  const published = untyped().publish({}, OrderPlaced, { orderId: "a" }, { headers });
  await expect(published).rejects.toThrowError(refusal("HEADER_INVALID", /`headers` must be/) as Error);
});

test.each([new Date(Number.NaN), new Date(-8.64e15), new Date("-004714-11-23T23:59:59Z"), "tomorrow", null])(
  "publish refuses %j as a time, before the database would",
  async (at) => {
    const published = untyped().publish({}, OrderPlaced, { orderId: "a" }, { at });
    await expect(published).rejects.toThrowError(refusal("OPTIONS_INVALID", /^publish\.at/) as Error);
  },
);
