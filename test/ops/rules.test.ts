// G5: the alert rules by themselves. What they do with a real Prometheus and real workers is in alerts.test.ts.
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse, stringify } from "yaml";
import { expect, onTestFinished, test } from "vitest";
import { metricCatalogue } from "../../src/telemetry/metric-catalogue.ts";
import { metricsIn } from "./support/metrics-in.ts";
import { prometheusMissing } from "./support/prometheus-server.ts";
import { alertNames, allRules, prometheusFolder, ruleFiles } from "./support/rule-files.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const alerts = allRules().filter(({ alert }) => alert !== undefined);
const missing = prometheusMissing();
const unitTests = readdirSync(join(prometheusFolder, "tests")).map((name) =>
  join(prometheusFolder, "tests", name),
);

test.each(alerts)("$alert says what it is, how bad, and which runbook helps", ({ labels, annotations }) => {
  expect(["warning", "critical"]).toContain(labels?.["severity"]);
  expect(Object.keys(annotations ?? {}).toSorted()).toEqual(["description", "runbook_url", "summary"]);
  const runbook = annotations?.["runbook_url"] ?? "";
  expect(runbook).toMatch(/^docs\/runbooks\/[a-z-]+\.md$/);
  expect(existsSync(join(root, runbook)), runbook).toBe(true);
});

test("the documents' alerts have their names, thresholds and times", () => {
  const rules = Object.fromEntries(
    alerts.map(({ alert, expr, for: wait, labels }) => [
      alert,
      `${expr.trim()} ${wait} ${labels?.["severity"]}`,
    ]),
  );
  expect(rules["OutboxHighLag"]).toMatch(/> 1000 5m critical$/);
  expect(rules["OutboxHighFailureRate"]).toMatch(/> 0\.1 2m warning$/);
  expect(rules["OutboxDeadLetterQueue"]).toMatch(/increase10m > 10 undefined critical$/);
  expect(rules["OutboxWorkerInactive"]).toMatch(/ 3m warning$/);
  expect(rules["OutboxOptimisticFailures"]).toMatch(/> 0\.1 5m warning$/);
  expect(rules["DeadLettersOpen"]).toMatch(/> 0 1m warning$/);
  expect(rules["ConsumerHighDuplicateRate"]).toMatch(/> 0\.1 10m warning$/);
});

test("the guide lists every alert with its wait, severity and runbook", () => {
  const guide = readFileSync(join(root, "docs/guides/alerts.md"), "utf8");
  const rows = guide.split("\n").filter((line) => line.startsWith("| `"));
  const listed = rows.map((row) => row.split("|").map((cell) => cell.trim()));
  const rules = listed.map(([, name, , wait, severity, runbook]) => [
    name?.replaceAll("`", ""),
    wait === "–" ? undefined : wait?.replace(" min", "m"),
    severity,
    /\(\.\.\/(.*)\)/.exec(runbook ?? "")?.[1],
  ]);
  const wanted = alerts.map(({ alert, for: wait, labels, annotations }) => [
    alert,
    wait,
    labels?.["severity"],
    annotations?.["runbook_url"]?.replace("docs/", ""),
  ]);
  const lines = (rowsOf: readonly unknown[][]): string[] => rowsOf.map((row) => row.join(" ")).toSorted();
  expect(lines(rules)).toEqual(lines(wanted));
});

test("rules use only metrics of the catalogue, figures recorded here, and metrics of other exporters", () => {
  const recorded = allRules().flatMap(({ record }) => record ?? []);
  const known = new Set([...Object.keys(metricCatalogue), ...recorded, "up", "kube_job_status_failed"]);
  const strange = allRules().flatMap(({ expr }) => metricsIn(expr).filter((name) => !known.has(name)));
  expect(strange).toEqual([]);
});

test("every alert has a unit test in which it fires and one in which it does not", () => {
  const verdicts = unitTests.flatMap((path) => verdictsIn(readFileSync(path, "utf8")));
  for (const name of alertNames()) {
    const own = verdicts.filter(({ alert }) => alert === name).map(({ fires }) => fires);
    expect({ name, fires: own.includes(true), rests: own.includes(false) }).toEqual({
      name,
      fires: true,
      rests: true,
    });
  }
});

test.skipIf(missing !== undefined)("promtool finds no fault with the rules and their unit tests pass", () => {
  const rules = [...ruleFiles().keys()].map((name) => join(prometheusFolder, "rules", name));
  expect(execFileSync("promtool", ["check", "rules", ...rules], { encoding: "utf8" })).not.toContain(
    "FAILED",
  );
  const { status, stdout, stderr } = spawnSync("promtool", ["test", "rules", ...unitTests], {
    encoding: "utf8",
  });
  expect(stdout + stderr).not.toContain("FAILED");
  expect(status).toBe(0);
});

test.skipIf(missing !== undefined)(
  "promtool takes the example configuration, but for what Debian's build leaves out",
  () => {
    const config = parse(readFileSync(join(prometheusFolder, "prometheus.yaml"), "utf8")) as {
      scrape_configs: Record<string, unknown>[];
    };
    for (const scrape of config.scrape_configs) delete scrape["kubernetes_sd_configs"];
    const folder = mkdtempSync(join(tmpdir(), "sagabox-config-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    writeFileSync(join(folder, "prometheus.yaml"), stringify({ ...config, rule_files: [] }));
    const { status, stderr } = spawnSync("promtool", ["check", "config", join(folder, "prometheus.yaml")], {
      encoding: "utf8",
    });
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  },
);

test.skipIf(missing !== undefined)(
  "Alertmanager's own tool takes the routing example and sends alerts where they belong",
  () => {
    const config = join(root, "ops/alertmanager/alertmanager.yaml");
    const amtool = (...args: string[]): string =>
      execFileSync("amtool", args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
    expect(amtool("check-config", config)).toContain("SUCCESS");
    const route = (severity: string): string =>
      amtool(
        "config",
        "routes",
        "test",
        `--config.file=${config}`,
        "alertname=OutboxHighLag",
        `severity=${severity}`,
      );
    expect(route("critical")).toBe("pagerduty,opsgenie");
    expect(route("warning")).toBe("opsgenie");
    expect(readFileSync(config, "utf8")).not.toMatch(/(routing|service|api)_key:/);
  },
);

test.skipIf(missing !== undefined)("a page about two topics at once says which, and is never empty", () => {
  const { receivers } = parse(readFileSync(join(root, "ops/alertmanager/alertmanager.yaml"), "utf8")) as {
    receivers: readonly Record<string, readonly Record<string, string>[]>[];
  };
  const folder = mkdtempSync(join(tmpdir(), "alertmanager-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const data = join(folder, "group.json");
  const alert = (topic: string) => ({
    status: "firing",
    labels: { topic },
    annotations: { summary: `Nothing is sent to ${topic}`, description: "Wait.", runbook_url: "docs/x.md" },
  });
  const alerts = [alert("orders"), alert("bills")];
  writeFileSync(data, JSON.stringify({ status: "firing", alerts, commonLabels: {}, commonAnnotations: {} }));
  const renderTemplate = (template = ""): string =>
    execFileSync(
      "amtool",
      [
        "template",
        "render",
        `--template.glob=${folder}/*.tmpl`,
        `--template.data=${data}`,
        `--template.text=${template}`,
      ],
      { encoding: "utf8" },
    ).trim();
  writeFileSync(join(folder, "none.tmpl"), "");
  const pagerduty = receivers[0]?.["pagerduty_configs"]?.[0];
  const opsgenie = receivers[1]?.["opsgenie_configs"]?.[0];
  expect(renderTemplate(pagerduty?.["description"])).toBe("Nothing is sent to orders (2 alerts)");
  expect(renderTemplate(opsgenie?.["message"])).toBe("Nothing is sent to orders (2 alerts)");
  expect(renderTemplate(opsgenie?.["description"])).toContain("[firing] Nothing is sent to bills\nWait.");
  expect(renderTemplate(opsgenie?.["note"])).toMatch(/docs\/x\.md$/);
});

interface Verdict {
  readonly alert: string;
  readonly fires: boolean;
}

function verdictsIn(text: string): Verdict[] {
  const { tests } = parse(text) as {
    tests: readonly {
      alert_rule_test?: readonly { alertname: string; exp_alerts: readonly unknown[] }[];
      promql_expr_test?: readonly { expr: string; exp_samples: readonly unknown[] }[];
    }[];
  };
  return tests.flatMap(({ alert_rule_test = [], promql_expr_test = [] }) => [
    ...alert_rule_test.map(({ alertname, exp_alerts }) => ({
      alert: alertname,
      fires: exp_alerts.length > 0,
    })),
    ...promql_expr_test.map(({ expr, exp_samples }) => ({
      alert: /alertname="(\w+)"/.exec(expr)?.[1] ?? "",
      fires: exp_samples.length > 0,
    })),
  ]);
}
