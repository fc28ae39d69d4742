import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { createBus, event } from "sagabox";
import { RecordingObserver } from "../../test/support/recording-observer.ts";
import { temporaryDatabase } from "../../test/support/database.ts";

const Happened = event("happened", { schema: z.object({ n: z.number() }) });

const withMessage = (message: unknown): Error =>
  Object.defineProperty(new Error("x"), "message", { value: message });

test.each([
  ["holds a NUL", () => new Error("read \0 from the device")],
  ["has no message", () => withMessage(undefined)],
  ["has a number for a message", () => withMessage(42)],
  ["has an object for a message", () => withMessage({ text: "no" })],
  [
    "throws when its message is read",
    () =>
      Object.defineProperty(new Error("x"), "message", {
        get: () => {
          throw new Error("hidden");
        },
      }),
  ],
])(
  "an error that %s is retried and buried like any other, and holds up nobody",
  async (_, make) => {
    const { pool } = await temporaryDatabase({ max: 20 });
    const observer = new RecordingObserver();
    const bus = createBus({ service: "test", database: pool, log: false, observers: [observer] });
    await bus.migrate();
    onTestFinished(async () => void (await bus.stop()));
    const retry = { maxAttempts: 2, firstDelay: 1, maxDelay: 2 } as const;
    bus.on(Happened, { consumer: "odd", retry }, async ({ data }) => {
      if (data.n === 1) throw make();
      if (data.n === 2) throw new Error("an ordinary one");
    });
    await bus.run();
    await bus.transaction(async (tx) => {
      for (let n = 0; n < 6; n++) await tx.publish(Happened, { n });
    });
    await observer.until("consumer.processed", 4);
    await observer.until("dead_letter.buried", 2);
    expect(observer.of("dead_letter.buried").map(({ reason }) => reason)).toEqual(["exhausted", "exhausted"]);
  },
  15_000,
);
