import { expect, onTestFinished, test } from "vitest";
import type { Database, Session } from "./database.ts";
import { Notifications } from "./notifications.ts";

test("a connection on which listening failed is given back, and the next one listens", async () => {
  const released: string[] = [];
  const opened: string[] = [];
  const session = async (): Promise<Session> => {
    const name = `session ${opened.push("opened")}`;
    return {
      broken: false,
      run: () => Promise.reject(new Error("nobody asks")),
      listen: () => (opened.length === 1 ? Promise.reject(new Error("cut")) : Promise.resolve()),
      onBreak: () => undefined,
      release: () => void released.push(name),
    };
  };
  let back = (): void => undefined;
  const isBack = new Promise<void>((resolve) => (back = resolve));
  const notifications = new Notifications({
    database: { session } as unknown as Database,
    channel: "hints",
    hear: () => undefined,
    onGap: back,
    onError: () => expect(notifications.listening).toBe(false),
  });
  onTestFinished(() => notifications.stop());
  await notifications.start();
  await isBack;
  expect([released, notifications.listening]).toEqual([["session 1"], true]);
});
