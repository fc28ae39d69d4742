// G5: a real Prometheus scrapes real workers under load. Every alert is made to fire by what it is about, and resolves when
// that is repaired. The rules are those of ops/prometheus, with all times divided by a hundred (support/faster-rules.ts).
// Only what kube-state-metrics would say is scripted (situations/jobs-failed.ts).
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { dashboards } from "../../scripts/dashboards/index.ts";
import { allWell } from "./situations/all-well.ts";
import { badMessages } from "./situations/bad-messages.ts";
import { brokerDown } from "./situations/broker-down.ts";
import { databaseAway } from "./situations/database-away.ts";
import { jobsFailed } from "./situations/jobs-failed.ts";
import { poolExhausted } from "./situations/pool-exhausted.ts";
import type { Situation } from "./situations/situation.ts";
import { tablesForged } from "./situations/tables-forged.ts";
import { workerKilled } from "./situations/worker-killed.ts";
import { faster } from "./support/faster-rules.ts";
import { PrometheusServer, prometheusMissing } from "./support/prometheus-server.ts";
import { alertNames, ruleFiles } from "./support/rule-files.ts";

const FACTOR = 100;
const all = [
  allWell,
  brokerDown,
  badMessages,
  workerKilled,
  databaseAway,
  poolExhausted,
  tablesForged,
  jobsFailed,
];
const missing = prometheusMissing();

/** Which installations an alert of a situation may be about. */
function findTargets({ targets }: Situation, name: string): string[] {
  return Object.keys(targets).map((job) => `${name} of ${job}`);
}

/** A query as Grafana would send it, for all installations. */
function describeQuery(query: string): string {
  return query.replaceAll("$__rate_interval", "4s").replaceAll(/\$(namespace|job)/g, ".*");
}

describe.skipIf(missing !== undefined)("with a real Prometheus", () => {
  const prometheus = new PrometheusServer();
  const situations: Situation[] = [];

  const firing = async (): Promise<string[]> =>
    (await prometheus.firing()).map(({ name, job }) => `${name} of ${job}`).toSorted();

  beforeAll(async () => {
    for (const make of all) situations.push(await make());
    const targets = Object.assign({}, ...situations.map((one) => one.targets)) as Record<string, string>;
    const rules = new Map([...ruleFiles()].map(([name, file]) => [name, faster(file, FACTOR)]));
    await prometheus.start({ everyMs: 500, targets, rules });
  });

  afterAll(async () => {
    await prometheus.stop();
    await Promise.all(situations.map((one) => one.end()));
  });

  test("every alert has a situation here", () => {
    expect(situations.flatMap(({ alerts }) => alerts).toSorted()).toEqual(alertNames().toSorted());
  });

  test("all workers are scraped and nothing fires while all is well", async () => {
    const count = async (): Promise<number> => (await prometheus.query("sagabox_build_info")).length;
    await expect.poll(count, { timeout: 30_000 }).toBe(8);
    expect(await firing()).toEqual([]);
  });

  test(
    "each alert fires when its situation is there, for that installation",
    { timeout: 120_000 },
    async () => {
      const fired = new Set<string>();
      await Promise.all(situations.map((one) => one.cause()));
      const listMissed = async (): Promise<string[]> => {
        for (const one of await firing()) fired.add(one);
        return situations.flatMap((one) =>
          one.alerts.filter((name) => !findTargets(one, name).some((about) => fired.has(about))),
        );
      };
      await expect.poll(listMissed, { timeout: 90_000, interval: 200 }).toEqual([]);
    },
  );

  test("and meanwhile every query of every dashboard has data", { timeout: 120_000 }, async () => {
    for (const { title, panels } of Object.values(dashboards))
      for (const panel of panels)
        for (const query of Object.values(panel.queries)) {
          const figures = async (): Promise<boolean> =>
            (await prometheus.query(describeQuery(query))).some(({ value }) => Number.isFinite(value));
          await expect
            .poll(figures, { timeout: 10_000, message: `${title}, ${panel.title}: ${query}` })
            .toBe(true);
        }
  });

  test("and resolves when that is repaired", { timeout: 120_000 }, async () => {
    await Promise.all(situations.map((one) => one.repair()));
    await expect.poll(firing, { timeout: 90_000, interval: 200 }).toEqual([]);
  });

  test("and all the time nothing fired for the installation in which nothing went wrong", async () => {
    const healthy = situations.filter(({ alerts }) => alerts.length === 0);
    const jobs = healthy.flatMap(({ targets }) => Object.keys(targets));
    const everFired = (of: string) =>
      prometheus.query(`count by (alertname) (count_over_time(ALERTS{alertstate="firing",${of}}[1h]))`);
    expect(jobs).toEqual(["mill"]);
    expect(await everFired('job="shop"')).not.toEqual([]);
    expect(await everFired('job="mill"')).toEqual([]);
  });

  test(
    "what waits for consumers is known without any setting, at a broker and in PostgreSQL",
    { timeout: 60_000 },
    async () => {
      const listKnown = async (): Promise<string[]> =>
        (await prometheus.query('group by (job) (last_over_time(transport_depth{job=~"mill|billing"}[1h]))'))
          .map(({ metric }) => metric["job"] ?? "")
          .toSorted();
      await expect.poll(listKnown, { timeout: 45_000 }).toEqual(["billing", "mill"]);
    },
  );
});
