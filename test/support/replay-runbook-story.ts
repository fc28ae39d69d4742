import { readFile } from "node:fs/promises";
import { createBus, event, permanent } from "sagabox";
import { expect, onTestFinished } from "vitest";
import { z } from "zod";
import { cliInProcess } from "./cli-in-process.ts";
import { temporaryDatabase } from "./database.ts";
import { someDeadLetters } from "./dead-letters.ts";

const Placed = event("order.placed", {
  schema: z.object({ n: z.number(), cause: z.number() }),
  key: ({ n }) => `k${n}`,
});

export interface RunbookSize {
  /** Of all three causes together; a multiple of 20. */
  readonly letters: number;
  readonly rate: number;
}

/** The commands of the runbook, in their order. */
async function runbook(): Promise<readonly string[]> {
  const text = await readFile(new URL("../../docs/runbooks/replay.md", import.meta.url), "utf8");
  return [...text.matchAll(/```sh\n(.*?)\n```/gs)].map(([, command = ""]) => command);
}

/** A line as a shell would take it apart. */
function words(line: string): string[] {
  return [...line.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? "");
}

async function setup({ letters, rate }: RunbookSize) {
  const { pool, url } = await temporaryDatabase({ max: 30, migrated: true });
  const bus = createBus({ service: "shop", database: pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  const broken = new Set([2]);
  let handled = 0;
  bus.on(Placed, { consumer: "billing", retry: { maxAttempts: 3, firstDelay: 50 } }, ({ data }) => {
    if (broken.has(data.cause)) throw permanent(`no price for article ${data.n}`);
    handled += 1;
  });
  await someDeadLetters(pool, { type: "order.placed", topic: "events.order.placed" }, [
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
  const values: Record<string, string> = { rate: String(rate), reason: "fixed in 2.4.1" };
  const follow = async (command: string | undefined, ...more: string[]) => {
    const line = (command ?? "").replaceAll(/<(\w+)>/g, (_, name: string) => values[name] ?? `<${name}>`);
    expect(line).not.toContain("<");
    const [program, ...args] = words(line);
    expect(program).toBe("sagabox");
    return cliInProcess([...args, ...more], { DATABASE_URL: url, USER: "ann" });
  };
  const rows = async <T>(sql: string) => (await pool.query(sql)).rows as T[];
  return { broken, values, follow, rows, handled: () => handled };
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
  const { broken, values, follow, rows, handled } = await setup(size);
  const { letters, rate } = size;
  const repaired = letters * 0.75;
  const [see, show, explain, dryRun, replay, stopped, check, replayGroup, , , done, audit] = await runbook();

  const seen = await follow(see, "--json");
  expect(seen.code).toBe(3);
  const { open, groups } = JSON.parse(seen.stdout) as Groups;
  expect(open).toBe(letters);
  expect(groups.map((group) => group.open)).toEqual([letters * 0.4, letters * 0.35, letters * 0.25]);
  values["letter"] = groups[2]?.sampleId ?? "";
  expect((await follow(show)).stdout).toContain(`Permanent: no price for article ${letters * 0.25}`);
  values["message"] = groups[2]?.sampleMessageId ?? "";
  expect((await follow(explain)).stdout).toContain("consumer billing: dead");

  expect((await follow(dryRun)).stdout).toContain("Nothing was replayed: this was a dry run.");
  const told = await follow(replay, "--json");
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
    `with replayed as (select at from sagabox.audit_log where action = 'dead_letter.replay')
     select max(count)::int as most from (
       select count(*) over (order by at range between current row and interval '999 ms' following) as count from replayed) as w`,
  );
  expect(most?.most).toBeLessThanOrEqual(rate * 1.25);
  expect(most?.most).toBeGreaterThan(rate * 0.6);

  expect((await follow(stopped)).stdout).toContain(`dead_letter_group ${groups[2]?.fingerprint ?? ""}`);
  expect(await follow(check)).toMatchObject({ code: 3 });
  expect(
    await rows(`select action, outcome, count(*)::int as lines, count(distinct target_id)::int as targets
                  from sagabox.audit_log where actor = 'ann' and reason = 'fixed in 2.4.1' group by 1, 2 order by 1`),
  ).toEqual([
    { action: "dead_letter.replay", outcome: "done", lines: repaired + 3, targets: repaired + 3 },
    { action: "dead_letter.replay_finished", outcome: "done", lines: 2, targets: 2 },
    { action: "dead_letter.replay_stopped", outcome: "done", lines: 1, targets: 1 },
    { action: "dead_letter.staged_replay", outcome: "done", lines: 1, targets: 0 },
  ]);

  broken.clear();
  values["group"] = groups[2]?.fingerprint ?? "";
  values["rate"] = "4000";
  expect(await follow(replayGroup)).toMatchObject({ code: 0 });
  expect(handled()).toBe(letters);
  expect(await follow(done)).toMatchObject({ code: 0, stdout: "There are no open dead letters.\n" });
  expect((await follow(audit)).stdout).toContain("dead_letter.replay");
  expect(await rows("select count(*)::int as n from sagabox.consumer_inbox where effect")).toEqual([
    { n: letters },
  ]);
  return { tookMs: report.tookMs, mostInASecond: most?.most ?? 0 };
}
