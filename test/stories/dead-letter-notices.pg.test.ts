import { createBus, event, permanent, type DeadLetterNotice } from "sagabox";
import { MemoryTransport } from "sagabox/testing";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../support/database.ts";
import { hookServer } from "../support/hook-server.ts";
import { ScriptedTransport } from "../support/scripted-transport.ts";

const Placed = event("notice.placed", { schema: z.object({ email: z.string() }) });
const data = { email: "jane@example.org" };

async function setup(transport: ScriptedTransport | MemoryTransport) {
  const { pool } = await temporaryDatabase({ max: 30, migrated: true });
  const server = await hookServer();
  const notices: DeadLetterNotice[] = [];
  const bus = createBus({
    service: "shop",
    database: pool,
    transport,
    log: false,
    outbox: { retry: { maxAttempts: 1 } },
    onDeadLetter: (notice) => {
      notices.push(notice);
      throw new Error("the hook itself fails");
    },
    notify: { webhook: { url: server.url, secret: "a secret of some length" } },
  });
  onTestFinished(async () => void (await bus.stop()));
  return { bus, server, notices };
}

test("E6: a message that cannot be handled is parked, and hook and webhook get a notice without its data", async () => {
  const { bus, server, notices } = await setup(new MemoryTransport());
  bus.on(Placed, { consumer: "billing" }, ({ data: { email } }) => {
    throw permanent(`no account for ${email}`);
  });
  await bus.run();
  const { id } = await bus.transaction((tx) => tx.publish(Placed, data));
  const [posted] = await server.until(1);
  expect(JSON.parse(posted?.body ?? "")).toMatchObject({
    service: "shop",
    origin: "consumer",
    consumer: "billing",
    message_id: id,
    message_type: "notice.placed",
    reason: "rejected",
  });
  expect(posted?.body).not.toContain("jane");
  expect(notices).toMatchObject([{ messageId: id, error: "no account for jane@example.org" }]);
  expect((await bus.deadLetters.list()).map(({ messageId }) => messageId)).toEqual([id]);
});

test.each(["refused", "rejected"] as const)(
  "E6: a message that is %s by the broker is reported as well",
  async (answer) => {
    const transport = new ScriptedTransport();
    transport.answer = () => answer;
    const { bus, server } = await setup(transport);
    await bus.run();
    const { id } = await bus.transaction((tx) => tx.publish(Placed, data));
    const [posted] = await server.until(1);
    expect(JSON.parse(posted?.body ?? "")).toMatchObject({
      origin: "outbox",
      consumer: null,
      message_id: id,
      reason: answer === "refused" ? "rejected" : "exhausted",
    });
    expect(posted?.body).not.toContain("jane");
  },
);

test("E6: a message without an id, and one that came too late, are reported too", async () => {
  const { bus, server } = await setup(new ScriptedTransport());
  await bus.run();
  await bus.inbox.process({ consumer: "own loop", topic: "t", type: "foreign", data }, () => undefined);
  await bus.transaction((tx) => tx.publish(Placed, data, { ttl: 1, delay: 50 }));
  const posted = await server.until(2);
  const bodies = posted.map(({ body }) => JSON.parse(body) as { origin: string; reason: string });
  expect(bodies).toMatchObject([
    { origin: "consumer", reason: "rejected" },
    { origin: "outbox", reason: "expired" },
  ]);
});
