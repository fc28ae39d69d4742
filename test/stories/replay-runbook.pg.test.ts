import { readFile } from "node:fs/promises";
import { createBus, event, permanent } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { cliInProcess } from "../support/cli-in-process.ts";
import { temporaryDatabase } from "../support/database.ts";
import { someDeadLetters } from "../support/dead-letters.ts";

vi.setConfig({ testTimeout: 120_000 });

const Placed = event("order.placed", {
  schema: z.object({ n: z.number(), cause: z.number() }),
  key: ({ n }) => `k${n}`,
});

const RATE = 1_000;

/** The commands of the runbook, in their order. */
async function runbook(): Promise<readonly string[]> {
  const text = await readFile(new URL("../../docs/runbooks/replay.md", import.meta.url), "utf8");
  return [...text.matchAll(/```sh\n(.*?)\n```/gs)].map(([, command = ""]) => command);
}

/** A line as a shell would take it apart. */
function words(line: string): string[] {
  return [...line.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? "");
}

async function setup() {
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
      letters: 4_000,
      error: "'order ' || n || ' has no customer'",
      errorType: "TypeError",
    },
    {
      consumer: "billing",
      letters: 3_500,
      error: `'timeout after ' || n || ' ms at "http://tax/' || n || '"'`,
    },
    {
      consumer: "billing",
      letters: 2_500,
      error: "'no price for article ' || n",
      errorType: "Permanent",
      reason: "rejected",
    },
  ]);
  await bus.run();
  const values: Record<string, string> = { rate: String(RATE), reason: "fixed in 2.4.1" };
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

test("E4, runbook replay: 10,000 letters of three causes, two repaired, one not, by the command line alone", async () => {
  const { broken, values, follow, rows, handled } = await setup();
  const [see, show, explain, dryRun, replay, stopped, check, replayGroup, , , done, audit] = await runbook();

  const seen = await follow(see, "--json");
  expect(seen.code).toBe(3);
  const { open, groups } = JSON.parse(seen.stdout) as Groups;
  expect(open).toBe(10_000);
  expect(groups.map((group) => group.open)).toEqual([4_000, 3_500, 2_500]);
  values["letter"] = groups[2]?.sampleId ?? "";
  expect((await follow(show)).stdout).toContain("Permanent: no price for article 2500");
  values["message"] = groups[2]?.sampleMessageId ?? "";
  expect((await follow(explain)).stdout).toContain("consumer billing: dead");

  expect((await follow(dryRun)).stdout).toContain("Nothing was replayed: this was a dry run.");
  const told = await follow(replay, "--json");
  expect(told.code).toBe(4);
  const report = JSON.parse(told.stdout) as { tookMs: number; groups: object[] };
  expect(report).toMatchObject({
    verdict: "stopped",
    replayed: 7_503,
    handled: 7_500,
    diedAgain: 3,
    left: 2_497,
  });
  expect(report.groups).toMatchObject([
    { verdict: "done", planned: 4_000, handled: 4_000 },
    { verdict: "done", planned: 3_500, handled: 3_500 },
    { verdict: "stopped", planned: 2_500, replayed: 3, diedAgain: 3, stage: "canary" },
  ]);
  expect(handled()).toBe(7_500);

  // At the set rate: no second had more than that, but for the chunk that its edges may cut.
  const [most] = await rows<{ most: number; seconds: number }>(
    `with replayed as (select at from sagabox.audit_log where action = 'dead_letter.replay')
     select max(count)::int as most from (
       select count(*) over (order by at range between current row and interval '999 ms' following) as count from replayed) as w`,
  );
  expect(most?.most).toBeLessThanOrEqual(RATE * 1.25);
  expect(most?.most).toBeGreaterThan(RATE / 4);

  expect((await follow(stopped)).stdout).toContain(`dead_letter_group ${groups[2]?.fingerprint ?? ""}`);
  expect(await follow(check)).toMatchObject({ code: 3 });
  expect(
    await rows(`select action, outcome, count(*)::int as lines, count(distinct target_id)::int as targets
                  from sagabox.audit_log where actor = 'ann' and reason = 'fixed in 2.4.1' group by 1, 2 order by 1`),
  ).toEqual([
    { action: "dead_letter.replay", outcome: "done", lines: 7_503, targets: 7_503 },
    { action: "dead_letter.replay_finished", outcome: "done", lines: 2, targets: 2 },
    { action: "dead_letter.replay_stopped", outcome: "done", lines: 1, targets: 1 },
    { action: "dead_letter.staged_replay", outcome: "done", lines: 1, targets: 0 },
  ]);

  broken.clear();
  values["group"] = groups[2]?.fingerprint ?? "";
  values["rate"] = "4000";
  expect(await follow(replayGroup)).toMatchObject({ code: 0 });
  expect(handled()).toBe(10_000);
  expect(await follow(done)).toMatchObject({ code: 0, stdout: "There are no open dead letters.\n" });
  expect((await follow(audit)).stdout).toContain("dead_letter.replay");
  expect(await rows("select count(*)::int as n from sagabox.consumer_inbox where effect")).toEqual([
    { n: 10_000 },
  ]);
});
