import { createBus, event, permanent } from "sagabox";
import { expect, onTestFinished } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "./database.ts";
import { someDeadLetters } from "./dead-letters.ts";
import { Runbook } from "./runbook.ts";

const Placed = event("order.placed", {
  schema: z.object({ n: z.number(), cause: z.number() }),
  key: ({ n }) => `k${n}`,
});

const placed = { type: "order.placed", topic: "events.order.placed" };
const reason = "fixed in 2.4.1";

export interface RunbookSize {
  /** Of all three causes together; a multiple of 20. */
  readonly letters: number;
  readonly rate: number;
}

async function setup({ letters }: RunbookSize) {
  const { pool, url } = await temporaryDatabase({ max: 30, migrated: true });
  const bus = createBus({ service: "shop", database: pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  const broken = new Set([2]);
  let handled = 0;
  bus.on(Placed, { consumer: "billing", retry: { maxAttempts: 3, firstDelay: 50 } }, ({ data }) => {
    if (broken.has(data.cause)) throw permanent(`no price for article ${data.n}`);
    handled += 1;
  });
  await someDeadLetters(pool, placed, [
    {
      consumer: "billing",
      letters: letters * 0.4,
      error: "'order ' || n || ' has no customer'",
      errorType: "TypeError",
    },
    {
      consumer: "billing",
      letters: letters * 0.35,
      error: `'timeout after ' || n || ' ms at "http://tax/' || n || '"'`,
    },
    {
      consumer: "billing",
      letters: letters * 0.25,
      error: "'no price for article ' || n",
      errorType: "Permanent",
      reason: "rejected",
    },
  ]);
  await bus.run();
  const rows = async <T>(sql: string) => (await pool.query(sql)).rows as T[];
  const book = new Runbook("replay", url);
  return { pool, broken, book, rows, handled: () => handled };
}

interface Groups {
  readonly open: number;
  readonly groups: readonly {
    fingerprint: string;
    open: number;
    sampleId: string;
    sampleMessageId: string;
  }[];
}

/** Follows the runbook with letters of three causes, of which two are repaired, by the command line alone. */
export async function followReplayRunbook(size: RunbookSize) {
  const harness = await setup(size);
  const { book, broken, rows, handled } = harness;
  const { letters, rate } = size;
  const repaired = letters * 0.75;

  const seen = await book.step("1. See the causes", 0, {}, "--json");
  expect(seen.code).toBe(3);
  const { open, groups } = JSON.parse(seen.stdout) as Groups;
  expect(open).toBe(letters);
  expect(groups.map((group) => group.open)).toEqual([letters * 0.4, letters * 0.35, letters * 0.25]);
  const [, , third] = groups;
  const one = { letter: third?.sampleId ?? "", message: third?.sampleMessageId ?? "" };
  const looked = await book.done("2. Look at one letter of each", one);
  expect(looked).toContain(`Permanent: no price for article ${letters * 0.25}`);
  expect(looked).toContain("consumer billing: dead");

  expect(await book.done("3. Repair the cause")).toContain("Dry run: nothing was replayed.");
  const told = await book.step("4. Replay in stages", 0, { rate: String(rate), reason }, "--json");
  expect(told.code).toBe(4);
  const report = JSON.parse(told.stdout) as { tookMs: number; groups: object[] };
  expect(report).toMatchObject({
    verdict: "stopped",
    replayed: repaired + 3,
    handled: repaired,
    diedAgain: 3,
    left: letters * 0.25 - 3,
  });
  expect(report.groups).toMatchObject([
    { verdict: "done", planned: letters * 0.4, handled: letters * 0.4 },
    { verdict: "done", planned: letters * 0.35, handled: letters * 0.35 },
    { verdict: "stopped", planned: letters * 0.25, replayed: 3, diedAgain: 3, stage: "canary" },
  ]);
  expect(handled()).toBe(repaired);

  // At the set rate: no second had more than that, but for the chunk that its edges may cut.
  const [most] = await rows<{ most: number; seconds: number }>(
    `with replayed as (select timestamp as at from sagabox.audit_log where action = 'dead_letter.replay')
     select max(count)::int as most from (
       select count(*) over (order by at range between current row and interval '999 ms' following) as count from replayed) as w`,
  );
  expect(most?.most).toBeLessThanOrEqual(rate * 1.25);
  expect(most?.most).toBeGreaterThan(rate * 0.6);

  const stopped = "5. Deal with what was stopped";
  expect((await book.step(stopped, 0)).stdout).toContain(`dead_letter_group ${third?.fingerprint ?? ""}`);
  expect(await book.step(stopped, 1)).toMatchObject({ code: 3 });
  expect(
    await rows(`select action, outcome, count(*)::int as lines, count(distinct target_id)::int as targets
                  from sagabox.audit_log where actor = 'ann' and reason = '${reason}' group by 1, 2 order by 1`),
  ).toEqual([
    { action: "dead_letter.replay", outcome: "done", lines: repaired + 3, targets: repaired + 3 },
    { action: "dead_letter.replay_finished", outcome: "done", lines: 2, targets: 2 },
    { action: "dead_letter.replay_stopped", outcome: "done", lines: 1, targets: 1 },
    { action: "dead_letter.staged_replay", outcome: "done", lines: 1, targets: 0 },
  ]);

  broken.clear();
  const group = third?.fingerprint ?? "";
  expect(await book.step(stopped, 2, { group, rate: "4000", reason })).toMatchObject({ code: 0 });
  expect(handled()).toBe(letters);
  await discardHopeless(harness);
  expect(await book.done("6. See that it worked")).toMatch(
    /^No open dead letters\.\n[^]*\bdead_letter\.replay [^]*\bdead_letter\.discard /,
  );
  expect(await rows("select count(*)::int as n from sagabox.consumer_inbox where effect")).toEqual([
    { n: letters },
  ]);
  expect(book.forgotten).toEqual([]);
  return { tookMs: report.tookMs, mostInASecond: most?.most ?? 0 };
}

/** Letters that nothing can repair come in; they are counted first, and then closed for good without being handled. */
async function discardHopeless({ pool, book, rows, handled }: Awaited<ReturnType<typeof setup>>) {
  const before = handled();
  const error = "'the shop of order ' || n || ' has closed for ever'";
  await someDeadLetters(pool, placed, [{ consumer: "billing", letters: 40, error, prefix: "hopeless" }]);
  const { stdout } = await book.step("1. See the causes", 0, {}, "--json");
  const { groups } = JSON.parse(stdout) as Groups;
  expect(groups).toMatchObject([{ open: 40 }]);
  const group = groups[0]?.fingerprint ?? "";
  const stopped = "5. Deal with what was stopped";
  const counted = await book.step(stopped, 3, { group });
  expect(counted).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("40 dead letters would be closed"),
  });
  const openOnes = "select count(*)::int as n from sagabox.dead_letter where closed_at is null";
  expect(await rows(openOnes)).toEqual([{ n: 40 }]);
  const closed = await book.step(stopped, 4, { group, reason: "that shop is gone" });
  expect(closed).toMatchObject({ code: 0, stdout: "40 dead letters were discarded.\n" });
  expect(await rows(openOnes)).toEqual([{ n: 0 }]);
  expect(handled()).toBe(before);
}
