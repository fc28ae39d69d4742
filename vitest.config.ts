import { defineConfig } from "vitest/config";
import { describeUnknownVariables } from "./src/options/environment-variables.ts";

// A misspelt variable would run fewer tests than it asks for, and each bus of the tests would warn about it.
for (const problem of describeUnknownVariables(process.env)) {
  throw new Error(`${problem} Variables of the tests begin with TEST_, see CONTRIBUTING.md.`);
}

// Projects are split by what they cost: a colleague without PostgreSQL can still run unit, types and
// architecture in seconds. Both PostgreSQL projects share one cluster per run.
const globalPostgres = ["test/support/global-postgres.ts"];
const globalPrograms = "test/support/programs.ts";

// Tests import the package by its public names; the private condition leads them to the sources.
const conditions = ["sagabox:source", "node"];
const shared = { resolve: { conditions }, ssr: { resolve: { conditions } } };

// How long a busy machine takes says nothing about what comes in the end.
const patient = { expect: { poll: { timeout: 20_000 } } };

// A project for each broker: its server is started when one of its tests is run, and only then.
const broker = (name: string) => ({
  ...shared,
  test: {
    name,
    ...patient,
    include: [`src/transports/${name}/**/*.broker.test.ts`, `test/brokers/${name}/**/*.test.ts`],
    globalSetup: [...globalPostgres, "test/support/brokers/global-broker.ts"],
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});

// Files that share nothing but modules without state of their own also share a process: loading those modules again for
// each file took longer than most files. What a test replaced is put back before the next, in whichever file that is.
const sharedProcess = { isolate: false, restoreMocks: true, unstubEnvs: true };

/** Whoever asks for all gets all. */
const isWhole = process.env["TEST_REQUIRE"] === "all";
const quickProof = process.env["TEST_PROOF"] !== "full";
// Runs of size, whose small versions are stories and broker tests. The second list also runs in CI, with small figures.
const onlyFull = [
  "broker-outage",
  "cluster-conformance",
  "clusters",
  "conservation-cost",
  "plans",
  "replay-runbook",
  ...(isWhole ? [] : ["locked-rows", "misuse", "real-brokers", "silent-database"]),
].map((name) => `test/chaos/${name}.chaos.ts`);

export default defineConfig({
  ...shared,
  test: {
    // Most of these wait for PostgreSQL or for time to pass; four side by side are no trouble even on two cores. Where all is
    // asked for nobody waits, and brokers run beside each other anyway.
    maxWorkers: isWhole ? 2 : 4,
    coverage: {
      provider: "v8",
      include: ["src/**/*.ts"],
      exclude: ["src/**/*.test.ts", "src/**/*.test-d.ts", "src/**/*.generated.ts"],
      reporter: ["text-summary", "json-summary", "html"],
      thresholds: { lines: 90 },
      reportOnFailure: true,
    },
    projects: [
      {
        ...shared,
        test: {
          name: "unit",
          ...patient,
          ...sharedProcess,
          testTimeout: 30_000,
          include: ["src/**/*.test.ts", "ui/src/**/*.test.ts", "test/properties/**/*.test.ts"],
          exclude: ["**/*.pg.test.ts", "**/*.broker.test.ts"],
        },
      },
      {
        ...shared,
        test: {
          name: "types",
          include: [],
          typecheck: {
            enabled: true,
            only: true,
            checker: "tsc",
            include: ["src/**/*.test-d.ts"],
            tsconfig: "./tsconfig.json",
            ignoreSourceErrors: true,
          },
        },
      },
      {
        ...shared,
        test: { name: "architecture", testTimeout: 180_000, include: ["test/architecture/**/*.test.ts"] },
      },
      {
        ...shared,
        test: {
          name: "postgres",
          ...patient,
          ...sharedProcess,
          include: ["src/**/*.pg.test.ts", "test/**/*.pg.test.ts"],
          globalSetup: [...globalPostgres, globalPrograms],
          testTimeout: 30_000,
          hookTimeout: 60_000,
        },
      },
      broker("rabbitmq"),
      broker("kafka"),
      broker("nats"),
      {
        ...shared,
        test: {
          name: "ops",
          ...patient,
          include: ["test/ops/**/*.test.ts"],
          globalSetup: globalPostgres,
          fileParallelism: false,
          testTimeout: 60_000,
          hookTimeout: 180_000,
        },
      },
      // With the ORMs and frameworks of test/stack/package.json, which scripts/run.mjs installs when this project is named.
      {
        ...shared,
        test: {
          name: "stack",
          ...patient,
          include: ["test/stack/**/*.test.ts"],
          globalSetup: globalPostgres,
          testTimeout: 60_000,
          hookTimeout: 60_000,
          typecheck: {
            enabled: isWhole || process.argv.includes("stack"),
            checker: "tsc",
            include: ["test/stack/**/*.test-d.ts"],
            tsconfig: "./test/stack/tsconfig.json",
          },
        },
      },
      {
        ...shared,
        test: {
          name: "proof",
          ...patient,
          include: ["test/chaos/**/*.chaos.ts"],
          exclude: quickProof ? onlyFull : [],
          globalSetup: [...globalPostgres, globalPrograms],
          fileParallelism: false,
          testTimeout: quickProof ? 180_000 : 1_800_000,
          hookTimeout: 120_000,
        },
      },
    ],
  },
});
