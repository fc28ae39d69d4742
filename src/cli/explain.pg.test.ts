import { command, createBus, event, permanent, retryAfter, saga } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { cliInProcess } from "../../test/support/run-cli.ts";
import { temporaryDatabase } from "../../test/support/database.ts";
import { until } from "../../test/support/relays.ts";
import { rolesHarness } from "../../test/support/roles-harness.ts";

vi.setConfig({ testTimeout: 60_000 });

const Placed = event("order.placed", { schema: z.object({ id: z.string() }), key: ({ id }) => id });

async function setup() {
  const { pool, url } = await temporaryDatabase({ max: 30, migrated: true });
  const bus = createBus({ service: "shop", database: pool, log: false, outbox: { optimistic: false } });
  onTestFinished(async () => void (await bus.stop()));
  const env = { DATABASE_URL: url };
  const publish = (id: string) => bus.transaction((tx) => tx.publish(Placed, { id }));
  return { bus, env, publish, explain: (...args: string[]) => cliInProcess(["explain", ...args], env) };
}

test("explain: a message nobody sends says that no worker owns its lane, and its successor what it waits for", async () => {
  const { publish, explain } = await setup();
  const first = await publish("o1");
  const second = await publish("o1");
  const told = await explain(first.id);
  expect(told).toMatchObject({ code: 0, stderr: "" });
  expect(told.stdout).toMatch(/^event order\.placed version 1, topic events\.order\.placed$/m);
  expect(told.stdout).toMatch(
    /^outbox: waiting\n {2}it is due, but no running worker owns lane \d+\n {2}→ Start a worker/m,
  );
  expect((await explain(second.id)).stdout).toContain(`message ${first.id} of the same key goes first`);
});

test("explain: a topic that nobody subscribed to is said to have no consumer", async () => {
  const { bus, publish, explain } = await setup();
  const Other = event("order.cancelled", { schema: z.object({ id: z.string() }) });
  bus.on(Other, { consumer: "mail" }, () => undefined);
  await bus.run();
  const { id } = await publish("o1");
  await until(async () => (await explain(id)).stdout.includes("outbox: sent"));
  expect((await explain(id)).stdout).toMatch(
    /^consumers: not handled\n {2}no consumer has subscribed to topic events\.order\.placed in this database$/m,
  );
});

test("explain: an event from before its consumer is not called finished, and the way to send it again is named", async () => {
  const { bus, publish, explain, env } = await setup();
  await bus.run();
  const { id } = await publish("o1");
  await until(async () => (await explain(id)).stdout.includes("outbox: sent"));
  const later = createBus({ service: "later", database: env.DATABASE_URL, log: false });
  onTestFinished(async () => void (await later.stop()));
  later.on(Placed, { consumer: "late" }, () => undefined);
  await later.run();
  const { stdout } = await explain("--key", "o1");
  expect(stdout).toMatch(
    /^ {2}consumer late: not handled, it subscribed at .*, after the message was written$/m,
  );
  expect(stdout).toContain(
    "What happens next: nothing. A consumer marked as not handled gets its message only if you republish it.",
  );
});

test("explain: handled by one, failing for another, dead for a third, and then replayed, with each moment", async () => {
  const { bus, publish, explain } = await setup();
  let repaired = false;
  bus.on(Placed, { consumer: "mail" }, () => undefined);
  bus.on(Placed, { consumer: "stock" }, () => {
    throw retryAfter("1h", "warehouse closed");
  });
  bus.on(Placed, { consumer: "billing" }, () => {
    if (!repaired) throw permanent("no price \u001b[31m\noutbox: forged");
  });
  await bus.run();
  const { id } = await publish("o1");
  const standing = async (consumer: string): Promise<string | undefined> => {
    const { messages } = JSON.parse((await explain(id, "--json")).stdout) as {
      messages: { standings: { where: string; state: string }[] }[];
    };
    return messages[0]?.standings.find(({ where }) => where === `consumer ${consumer}`)?.state;
  };
  await until(async () => (await standing("billing")) === "dead" && (await standing("stock")) === "retrying");
  expect(await standing("mail")).toBe("handled");
  const { stdout } = await explain(id);
  expect(stdout).toMatch(/^outbox: sent$/m);
  expect(stdout).toMatch(/^ {4}outbox: forged$/m);
  expect(stdout).not.toMatch(/^outbox: forged/m);
  expect(stdout).toMatch(
    /^consumer stock: retrying\n {2}it was put off: warehouse closed\n {2}→ Attempt 1 is due at/m,
  );
  expect(stdout).toMatch(/^consumer billing: dead\n {2}rejected after 1 attempts: Permanent: no price/m);
  expect(stdout).not.toContain("\u001b");
  const [letter] = await bus.deadLetters.list();
  repaired = true;
  await bus.deadLetters.replay(letter?.id ?? "");
  await until(async () => (await standing("billing")) === "handled");
  const after = (await explain(id)).stdout;
  const moments = [
    "written by shop",
    "confirmed by the transport",
    "died at billing (rejected)",
    "replayed",
    "handled by billing",
  ];
  const places = moments.map((moment) => after.lastIndexOf(moment));
  expect(places).toEqual(places.toSorted((a, b) => a - b));
  expect(places[0]).toBeGreaterThan(0);
});

test("explain: what is not there, what is no id, and no database each get one line and their exit code", async () => {
  const { explain } = await setup();
  expect(await explain("nobody")).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("[MESSAGE_NOT_FOUND]"),
  });
  expect(await explain()).toMatchObject({ code: 2, stderr: expect.stringContaining("needs an id or a key") });
  const away = await cliInProcess(["explain", "m"], { DATABASE_URL: "postgres://u:secret@127.0.0.1:1/x" });
  expect(away).toMatchObject({ code: 1, stdout: "" });
  expect(away.stderr).not.toContain("secret");
  expect((await cliInProcess(["help", "explain"], {})).stdout).toContain("Examples:");
});

test("explain: a viewer learns where it is, and neither its key nor why it failed", async () => {
  const { login, bus } = await rolesHarness();
  const shop = await bus(["worker"]);
  shop.on(Placed, { consumer: "billing" }, () => {
    throw permanent("no price for a-secret");
  });
  await shop.run({ parts: ["relay", "consumers"] });
  const { id } = await shop.transaction((tx) => tx.publish(Placed, { id: "key-17" }));
  const env = { DATABASE_URL: await login("viewer") };
  await until(async () =>
    (await cliInProcess(["explain", id], env)).stdout.includes("consumer billing: dead"),
  );
  const { code, stdout } = await cliInProcess(["explain", id], env);
  expect(code).toBe(0);
  expect(stdout).toContain("key hidden");
  expect(stdout).toContain("Hidden from viewers");
  expect(stdout).toMatch(/^outbox: sent$/m);
  expect(stdout).not.toMatch(/key-17|a-secret/);
});

const cook = saga("cook-order", {
  version: 1,
  input: z.object({ id: z.string() }),
  key: ({ id }) => id,
}).waitFor("paid", event("order.paid", { schema: z.object({ id: z.string() }), key: ({ id }) => id }), {
  timeout: "1d",
});

test("explain: a business key finds its messages, dead letters and sagas, on one timeline with what happens next", async () => {
  const { bus, publish, explain, env } = await setup();
  bus.on(Placed, { consumer: "mail" }, () => undefined);
  bus.on(Placed, { consumer: "billing" }, () => {
    throw permanent("no price");
  });
  bus.register(cook);
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, cook, { id: "123" }));
  const first = await publish("123");
  const second = await publish("123");
  const other = await publish("124");
  expect((await cliInProcess(["outbox", "list", "--key", "123", "--limit", "2"], env)).stdout).not.toContain(
    other.id,
  );
  await bus.run();
  const isSettled = async (): Promise<boolean> => {
    const { stdout } = await explain("--key", "123");
    return stdout.match(/consumer billing: dead/g)?.length === 4 && stdout.includes("waits for wait: paid");
  };
  await until(isSettled);
  const { code, stdout, stderr } = await explain("123");
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).toMatch(/^123 is a key: 2 messages, 1 saga$/m);
  expect(stdout).toContain(first.id);
  expect(stdout).toContain(second.id);
  expect(stdout).not.toContain(other.id);
  expect(stdout).toMatch(new RegExp(`^saga cook-order ${sagaId}$`, "m"));
  expect(stdout.slice(stdout.indexOf("What happens next:"))).toMatch(
    /saga cook-order [^]*→ It goes on with its input, or at [^]*order\.placed [^]*→ Nothing by itself\. Repair the cause/,
  );

  expect((await explain("1")).stdout).toMatch(/^1 is a dead letter: 1 message$/m);
  expect((await explain(sagaId)).stdout).toContain(`${sagaId} is a saga id: `);
  const byTrace = JSON.parse((await explain(first.id, "--json")).stdout) as {
    messages: { message: { traceId: string; correlationId: string } }[];
  };
  const { traceId = "", correlationId = "" } = byTrace.messages[0]?.message ?? {};
  expect((await explain("--trace", traceId)).stdout).toContain(first.id);
  expect((await explain("--correlation-id", correlationId)).stdout).toContain(first.id);
  expect((await explain("--limit", "1", "--key", "123")).stdout).toContain("Only the newest are shown");
  expect((await explain("--key", "123", "--trace", traceId)).code).toBe(2);
  const handled = await cliInProcess(["inbox", "list", "--key", "123"], env);
  expect(handled.stdout).toContain(second.id);
  expect(handled.stdout).not.toContain(other.id);
});

test("explain: the key of a saga finds the command that the saga waits for, and why it is not handled", async () => {
  const { bus, explain } = await setup();
  const Pay = command("bank.pay", { schema: z.object({ id: z.string() }) }); // without a key of its own
  const options = { version: 1, input: z.object({ id: z.string() }), key: ({ id }: { id: string }) => id };
  const checkout = saga("checkout", options)
    .send("pay", Pay, ({ input }) => input)
    .noUndo("a test");
  bus.on(Pay, { consumer: "bank" }, () => {
    throw retryAfter("1h", "the bank is closed");
  });
  bus.register(checkout);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => tx.start(checkout, { id: "o1" }));
  await bus.transaction((tx) => tx.start(checkout, { id: "o2" }));
  await until(async () => (await explain("o1")).stdout.includes("consumer bank: retrying"));
  const { stdout } = await explain("o1");
  expect(stdout).toMatch(/^o1 is a key: 1 message, 1 saga$/m);
  expect(stdout).toMatch(new RegExp(`^command bank\\.pay .*\n {2}key ${sagaId}, `, "m"));
  expect(stdout.slice(stdout.indexOf("What happens next:"))).toContain("the bank is closed");
});

test("explain: a viewer cannot search a key", async () => {
  const { login } = await rolesHarness();
  const env = { DATABASE_URL: await login("viewer") };
  const refused = await cliInProcess(["explain", "--key", "key-17"], env);
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining("needs the operator role") });
  const unknown = await cliInProcess(["explain", "key-17"], env);
  expect(unknown).toMatchObject({ code: 1, stderr: expect.stringContaining("A viewer cannot search keys") });
});
