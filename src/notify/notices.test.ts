import { createHmac } from "node:crypto";
import { expect, onTestFinished, test } from "vitest";
import { hookServer } from "../../test/support/hook-server.ts";
import { RecordingObserver } from "../../test/support/recording-observer.ts";
import { type DeadLetterNotice, NoticeQueue, Notices } from "./notices.ts";
import { readNoticeSettings, type NotifyOptions, type OnDeadLetter } from "./options.ts";

const buried = {
  origin: "consumer",
  consumer: "billing",
  id: "m-1",
  type: "order.placed",
  topic: "orders",
  reason: "exhausted",
  error: "no bill for jane@example.org",
} as const;
const context = { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" };

function setup(asked: NotifyOptions & { onDeadLetter?: OnDeadLetter }) {
  const { onDeadLetter, ...notify } = asked;
  const observer = new RecordingObserver();
  const settings = readNoticeSettings(onDeadLetter, notify);
  const notices = new Notices({ service: "shop", settings, observer });
  onTestFinished(() => notices.close());
  return { observer, notices };
}

function queue(deliver: (notice: DeadLetterNotice, missed: number) => Promise<void>, more: object = {}) {
  const observer = new RecordingObserver();
  const made = new NoticeQueue({
    via: "hook",
    observer,
    deadlineMs: 200,
    attempts: 3,
    firstWaitMs: 1,
    deliver,
    ...more,
  });
  onTestFinished(() => made.close(0));
  return { observer, queue: made };
}

const notice = (messageId: string): DeadLetterNotice => ({
  service: "shop",
  origin: "outbox",
  consumer: null,
  messageId,
  type: "t",
  topic: "t",
  reason: "expired",
  error: "",
  traceId: null,
  at: "2026-01-02T03:04:05.000Z",
});

test("E6: the hook gets the message, the consumer and the reason", async () => {
  const heard: DeadLetterNotice[] = [];
  const { notices, observer } = setup({ onDeadLetter: (one) => void heard.push(one) });
  notices.emit("dead_letter.buried", buried, context);
  notices.emit("worker.stopping", { worker: "w" });
  await observer.until("notice.sent");
  const { id: messageId, ...rest } = buried;
  expect(heard).toEqual([
    {
      service: "shop",
      messageId,
      ...rest,
      traceId: "0af7651916cd43dd8448eb211c80319c",
      at: expect.stringMatching(/Z$/),
    },
  ]);
});

test("E6: the webhook gets a signed body without the error's text or the payload", async () => {
  const server = await hookServer();
  const secret = "a secret of some length";
  const { notices, observer } = setup({
    webhook: { url: server.url, secret, headers: { authorization: "Bearer token" } },
  });
  notices.emit("dead_letter.buried", buried, context);
  const [posted] = await server.until(1);
  await observer.until("notice.sent");
  expect(JSON.parse(posted?.body ?? "")).toEqual({
    event: "dead_letter",
    service: "shop",
    origin: "consumer",
    consumer: "billing",
    message_id: "m-1",
    message_type: "order.placed",
    topic: "orders",
    reason: "exhausted",
    trace_id: "0af7651916cd43dd8448eb211c80319c",
    at: expect.any(String),
    missed: 0,
  });
  expect(posted?.body).not.toContain("jane");
  expect(posted?.headers).toMatchObject({
    authorization: "Bearer token",
    "content-type": "application/json",
  });
  const [, seconds, digest] =
    /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(posted?.headers["sagabox-signature"])) ?? [];
  expect(digest).toBe(createHmac("sha256", secret).update(`${seconds}.${posted?.body}`).digest("hex"));
});

test("E6: a webhook that fails temporarily is retried", async () => {
  const server = await hookServer();
  server.answer = (nth) => (nth === 1 ? 503 : 200);
  const { notices, observer } = setup({ webhook: { url: server.url } });
  notices.emit("dead_letter.buried", buried);
  await observer.until("notice.sent");
  expect(server.posted).toHaveLength(2);
  expect(server.posted[0]?.headers["sagabox-signature"]).toBeUndefined();
});

test.each([401, 404, 302])(
  "E6: status %i is final, and its report names neither address nor secret",
  async (status) => {
    const server = await hookServer();
    server.answer = () => status;
    const { notices, observer } = setup({
      webhook: {
        url: server.url,
        secret: "a secret of some length",
        headers: { authorization: "Bearer token" },
      },
    });
    notices.emit("dead_letter.buried", buried);
    const [failed] = await observer.until("notice.failed");
    expect(failed).toEqual({ via: "webhook", id: "m-1", attempt: 1, error: `it answered ${status}` });
    expect(server.posted).toHaveLength(1);
  },
);

test("E6: an unreachable address is reported by its error code only", async () => {
  const { queue: made, observer } = queue(() =>
    Promise.reject(new Error("the address could not be reached: X")),
  );
  made.push(notice("a"));
  const [failed] = await observer.until("notice.failed");
  expect(failed).toMatchObject({ attempt: 3, error: "the address could not be reached: X" });
});

test("E6: a hook that throws, synchronously or later, only fails its notice", async () => {
  const { queue: made, observer } = queue(
    ({ messageId }) => {
      if (messageId === "a") throw new Error("at once");
      return Promise.reject("later");
    },
    { attempts: 1 },
  );
  made.push(notice("a"));
  made.push(notice("b"));
  const failed = await observer.until("notice.failed", 2);
  expect(failed.map(({ error }) => error)).toEqual(["at once", "later"]);
});

test("E6: a hook that throws an unreadable value only fails its notice", async () => {
  const { queue: made, observer } = queue(() => Promise.reject(Object.create(null)), { attempts: 1 });
  made.push(notice("a"));
  const [failed] = await observer.until("notice.failed");
  expect(failed).toMatchObject({ error: "a value without a text was thrown" });
});

test("E6: a hook that hangs is abandoned at its deadline, and only a few run at once", async () => {
  const started: string[] = [];
  const { queue: made, observer } = queue(
    ({ messageId }) => {
      started.push(messageId);
      return new Promise<void>(() => undefined);
    },
    { attempts: 1, deadlineMs: 50, concurrency: 2 },
  );
  for (const id of ["a", "b", "c", "d"]) made.push(notice(id));
  await new Promise((resolve) => setImmediate(resolve));
  expect(started).toEqual(["a", "b"]);
  const failed = await observer.until("notice.failed", 4);
  expect(failed.map(({ error }) => error)).toEqual(Array(4).fill("no end within 50 ms"));
  expect(started).toEqual(["a", "b", "c", "d"]);
});

test("E6: notices above the capacity are dropped, counted, and mentioned in the next notice", async () => {
  let letGo: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (letGo = resolve));
  const missed: [string, number][] = [];
  const { queue: made, observer } = queue(
    async ({ messageId }, count) => {
      await held;
      missed.push([messageId, count]);
    },
    { concurrency: 1, capacity: 2, deadlineMs: 5_000 },
  );
  for (let i = 0; i < 10; i++) made.push(notice(`n${i}`));
  expect(observer.of("notice.dropped")).toHaveLength(7);
  letGo();
  await observer.until("notice.sent", 3);
  made.push(notice("after"));
  await observer.until("notice.sent", 4);
  expect(missed.map(([id]) => id)).toEqual(["n0", "n1", "n2", "after"]);
  expect(missed.reduce((sum, [, count]) => sum + count, 0)).toBe(7);
});

test("E6: closing waits for running notices, then drops the rest", async () => {
  const { queue: made, observer } = queue(() => new Promise<void>(() => undefined), {
    concurrency: 1,
    attempts: 9,
    deadlineMs: 10,
    firstWaitMs: 60_000,
  });
  made.push(notice("waits for its next attempt"));
  made.push(notice("never began"));
  await made.close(50);
  made.push(notice("too late"));
  expect(observer.of("notice.dropped").map(({ id }) => id)).toEqual(["never began", "too late"]);
  await observer.until("notice.failed");
});
