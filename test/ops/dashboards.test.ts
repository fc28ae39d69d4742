// G5: the Grafana dashboards by themselves. That every query has data is shown with a real Prometheus in alerts.test.ts.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";
import { expect, test } from "vitest";
import { dashboardFile, dashboards } from "../../scripts/dashboards/index.ts";
import { metricCatalogue } from "../../src/telemetry/metric-catalogue.ts";
import { metricsIn } from "./support/metrics-in.ts";

const grafana = fileURLToPath(new URL("../../ops/grafana", import.meta.url));
const folder = join(grafana, "dashboards");

test("the files are what their source says (npx tsx scripts/build-dashboards.ts writes them)", () => {
  expect(readdirSync(folder).toSorted()).toEqual(Object.keys(dashboards).toSorted());
  for (const [name, dashboard] of Object.entries(dashboards))
    expect(readFileSync(join(folder, name), "utf8"), name).toBe(dashboardFile(dashboard));
});

test("the documents' dashboard has its panels", () => {
  const outbox = dashboards["saga-outbox.json"];
  expect(outbox?.title).toBe("Saga Outbox Monitoring");
  expect(outbox?.panels.map(({ title }) => title)).toEqual([
    "Pending Events",
    "Publish Rate",
    "Failure Rate by Event Type",
    "Publish Latency (p50, p95, p99)",
    "Optimistic Send Success Rate",
    "Optimistic vs Polling Published Events",
    "Fallback Rate",
    "Inbox Duplicate Rate",
    "Average Processing Time",
    "Events by Consumer",
  ]);
});

test("no query asks for a metric that is not in the catalogue, and each is about the chosen installation", () => {
  const known = new Set(Object.keys(metricCatalogue));
  const queries = Object.values(dashboards).flatMap(({ panels }) =>
    panels.flatMap((panel) => Object.values(panel.queries)),
  );
  expect(queries.length).toBeGreaterThan(30);
  for (const query of queries) {
    expect(
      metricsIn(query).filter((name) => !known.has(name)),
      query,
    ).toEqual([]);
    expect(query).toContain('{namespace=~"$namespace", job=~"$job"');
  }
});

test("ids of dashboards and panels are their own, and the provisioning names a folder", () => {
  const models = readdirSync(folder).map(
    (name) =>
      JSON.parse(readFileSync(join(folder, name), "utf8")) as { uid: string; panels: { id: number }[] },
  );
  expect(new Set(models.map(({ uid }) => uid)).size).toBe(models.length);
  for (const { panels } of models) expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
  const provider: unknown = parse(
    readFileSync(join(grafana, "provisioning/dashboards/sagabox.yaml"), "utf8"),
  );
  expect(provider).toMatchObject({
    providers: [{ type: "file", options: { path: "/var/lib/grafana/dashboards/sagabox" } }],
  });
});
