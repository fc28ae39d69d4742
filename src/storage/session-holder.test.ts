import { expect, test } from "vitest";
import type { Database, Session } from "./database.ts";
import { SessionHolder } from "./session-holder.ts";

function setup() {
  const sessions: { broken: boolean; released: boolean }[] = [];
  const session = async (): Promise<Session> => {
    const opened = { broken: false, released: false };
    sessions.push(opened);
    await Promise.resolve();
    return Object.assign(opened, { release: () => void (opened.released = true) }) as unknown as Session;
  };
  const holder = new SessionHolder({ session } as unknown as Database, "test");
  return { holder, sessions };
}

test("several who ask at once share one session, and closing leaves none behind", async () => {
  const { holder, sessions } = setup();
  const [first, second, third] = await Promise.all([holder.get(), holder.get(), holder.get()]);
  expect(first === second && second === third).toBe(true);
  await holder.close();
  expect(sessions).toMatchObject([{ released: true }]);
});

test("several who find it broken share the next one, and the broken one is given back", async () => {
  const { holder, sessions } = setup();
  await holder.get();
  const [broken] = sessions;
  if (broken !== undefined) broken.broken = true;
  const [first, second] = await Promise.all([holder.get(), holder.get()]);
  expect(first).toBe(second);
  await holder.close();
  expect(sessions).toMatchObject([
    { broken: true, released: true },
    { broken: false, released: true },
  ]);
});
