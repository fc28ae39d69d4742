// G6, figure by figure, and how they depend on each other.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";
import { expect, test } from "vitest";
import { milliseconds, workerParts } from "../../src/options/index.ts";
import { LANES } from "../../src/lanes/index.ts";
import { render } from "./support/kustomize.ts";
import { listSecrets, type Container, type Pod } from "./support/pods.ts";

const ops = fileURLToPath(new URL("../../ops", import.meta.url));
const resources = render(join(ops, "kubernetes/overlays/production"));

test("3 replicas roll one by one without a gap, on different nodes", () => {
  const spec = part<{ replicas: number; strategy: unknown }>("Deployment", "sagabox-worker");
  expect(spec.replicas).toBe(3);
  expect(spec.strategy).toEqual({ type: "RollingUpdate", rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } });
  expect(worker().pod).toMatchObject({
    affinity: {
      podAntiAffinity: {
        preferredDuringSchedulingIgnoredDuringExecution: [
          { podAffinityTerm: { topologyKey: "kubernetes.io/hostname", labelSelector: selector } },
        ],
      },
    },
  });
});

test("two workers stay, 3 to 20 follow 1000 waiting messages each", () => {
  expect(part("PodDisruptionBudget")).toEqual({ minAvailable: 2, selector });
  expect(part("HorizontalPodAutoscaler")).toMatchObject({
    minReplicas: 3,
    maxReplicas: 20,
    scaleTargetRef: { kind: "Deployment", name: "sagabox-worker" },
    metrics: [{ external: { target: { type: "AverageValue", averageValue: "1000" } } }],
  });
});

test("there are at least as many lanes as workers", () => {
  const { maxReplicas } = part<{ maxReplicas: number }>("HorizontalPodAutoscaler");
  expect(LANES).toBeGreaterThanOrEqual(maxReplicas);
});

test("the autoscaler's metric is the one the adapter makes, for the job that Prometheus gives the pods", () => {
  const adapter = parse(readFileSync(join(ops, "kubernetes/prometheus-adapter.yaml"), "utf8")) as {
    rules: { external: [{ seriesQuery: string; name: { as: string }; metricsQuery: string }] };
  };
  const [rule] = adapter.rules.external;
  expect(rule.seriesQuery).toContain("outbox_pending_events_total");
  expect(rule.metricsQuery).toMatch(/^max by /);
  const { metrics } = part<{
    metrics: [{ external: { metric: { name: string; selector: { matchLabels: { job: string } } } } }];
  }>("HorizontalPodAutoscaler");
  const { metric } = metrics[0].external;
  expect(metric.name).toBe(rule.name.as);
  expect(metric.selector.matchLabels.job).toBe(selector.matchLabels["app.kubernetes.io/name"]);
  const { scrape_configs } = parse(readFileSync(join(ops, "prometheus/prometheus.yaml"), "utf8")) as {
    scrape_configs: [{ relabel_configs: object[] }];
  };
  expect(scrape_configs[0].relabel_configs).toContainEqual({
    source_labels: ["__meta_kubernetes_pod_label_app_kubernetes_io_name"],
    target_label: "job",
  });
});

test("a worker asks for 200m and 256Mi, and is stopped at 1 and 1Gi", () => {
  expect(worker().container.resources).toEqual({
    requests: { cpu: "200m", memory: "256Mi" },
    limits: { cpu: "1", memory: "1Gi" },
  });
});

test("every part of a worker runs somewhere: upkeep once and as the owner, all others without the owner's password", () => {
  const deployments = ["sagabox-worker", "sagabox-upkeep"].map(startService);
  const [parts, urls] = [
    deployments.map(({ container }) => container.args[container.args.indexOf("--parts") + 1]?.split(",")),
    deployments.map(({ container }) =>
      container.env?.find(({ name }) => name === "SAGABOX_DATABASE_URL_FILE"),
    ),
  ];
  expect(parts).toEqual([["relay", "consumers", "sagas"], ["upkeep"]]);
  expect(parts.flat()).toEqual(workerParts);
  expect(urls.map((url) => url?.value)).toEqual([
    "/run/secrets/sagabox/database-url",
    "/run/secrets/sagabox/owner-database-url",
  ]);
  expect(deployments.map(({ pod }) => listSecrets(pod))).toEqual([["database-url"], ["owner-database-url"]]);
  expect(part("Deployment", "sagabox-upkeep")).toMatchObject({ replicas: 1 });
});

test("the heap of each process stays below its memory", () => {
  const { container } = startService("sagabox-upkeep");
  expect(data()["NODE_OPTIONS"]).toBe("--max-old-space-size=768");
  expect(container.env).toContainEqual({ name: "NODE_OPTIONS", value: "--max-old-space-size=384" });
  expect(container.resources?.limits.memory).toBe("512Mi");
});

test("what selects the workers does not select the upkeep, which the network lets do as much", () => {
  expect(startService("sagabox-upkeep").labels).toMatchObject({ "app.kubernetes.io/name": "sagabox-upkeep" });
  expect(part("NetworkPolicy")).toMatchObject({
    podSelector: {
      matchExpressions: [
        { key: "app.kubernetes.io/name", values: ["sagabox-worker", "sagabox-upkeep", "sagabox-job"] },
      ],
    },
  });
});

test.each(["sagabox-worker", "sagabox-upkeep"])("probes and scrapes of %s reach the process", (name) => {
  const { pod, container, annotations } = startService(name);
  const config = data();
  expect(config).toMatchObject({ SAGABOX_HOST: "0.0.0.0", SAGABOX_PORT: "8000" });
  expect(container.ports).toEqual([{ name: "http", containerPort: 8000, protocol: "TCP" }]);
  expect(container.livenessProbe?.httpGet).toEqual({ path: "/health/live", port: "http" });
  expect(container.readinessProbe?.httpGet).toEqual({ path: "/health/ready", port: "http" });
  expect(annotations).toMatchObject({
    "prometheus.io/scrape": "true",
    "prometheus.io/port": "8000",
    "prometheus.io/path": "/metrics",
  });
  expect(pod.serviceAccountName).toBe("sagabox-worker");
});

test("the service leads to that port of the workers", () => {
  expect(part("Service")).toMatchObject({
    selector: selector.matchLabels,
    ports: [{ port: 8000, targetPort: "http" }],
  });
});

test.each(["sagabox-worker", "sagabox-upkeep"])(
  "%s has 60 s of grace, more than preStop and drain",
  (name) => {
    const { pod, container } = startService(name);
    expect(pod.terminationGracePeriodSeconds).toBe(60);
    const [program, seconds] = container.lifecycle?.preStop.exec.command ?? [];
    expect(program).toBe("sleep");
    const drainMs = milliseconds("drain", data()["SAGABOX_SHUTDOWN_TIMEOUT"] ?? "");
    expect(Number(seconds) * 1_000 + drainMs + 5_000).toBeLessThan(60_000);
  },
);

test("a worker is named after its pod", () => {
  expect(worker().container.env).toContainEqual({
    name: "WORKER_ID",
    valueFrom: { fieldRef: { fieldPath: "metadata.name" } },
  });
});

test("secrets are looked up every hour, the archive runs at 02:00 and the inbox is cleaned daily", () => {
  expect(part("ExternalSecret")).toMatchObject({ refreshInterval: "1h" });
  expect(part("CronJob", "sagabox-archive")).toMatchObject({ schedule: "0 2 * * *", timeZone: "Etc/UTC" });
  expect(part("CronJob", "sagabox-inbox-cleanup")).toMatchObject({ schedule: "30 3 * * *" });
});

const selector = { matchLabels: { "app.kubernetes.io/name": "sagabox-worker" } };

function part<T = unknown>(kind: string, name?: string): T {
  const [found] = resources.filter(
    (resource) => resource.kind === kind && (name === undefined || resource.metadata.name === name),
  );
  if (found === undefined) throw new Error(`there is no ${kind} ${name ?? ""}`);
  return found["spec"] as T;
}

function data(): Readonly<Record<string, string>> {
  const [config] = resources.filter(({ kind }) => kind === "ConfigMap");
  return (config?.["data"] ?? {}) as Record<string, string>;
}

interface Started {
  readonly pod: Pod;
  readonly container: Container;
  readonly labels: unknown;
  readonly annotations: unknown;
}

function worker(): Started {
  return startService("sagabox-worker");
}

/** What a deployment starts. */
function startService(name: string): Started {
  const { template } = part<{ template: { spec: Pod; metadata: Omit<Started, "pod" | "container"> } }>(
    "Deployment",
    name,
  );
  const [container] = template.spec.containers;
  if (container === undefined) throw new Error("there is no container");
  return { pod: template.spec, container, ...template.metadata };
}
