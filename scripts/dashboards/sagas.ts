import { gauge, quantiles, rate, type Dashboard } from "./panel.ts";

export const sagas: Dashboard = {
  uid: "sagabox-sagas",
  title: "Sagas",
  description: "How sagas begin, move and end.",
  panels: [
    {
      title: "Sagas by Status",
      description: "How many came into each status. Failed ones are open incidents.",
      unit: "cps",
      queries: { "{{saga_type}} {{status}}": `sum by (saga_type, status) (${rate("sagas_total")})` },
    },
    {
      title: "Open Sagas",
      description: "Not ended yet, by status. Failed ones wait for a person, stuck ones for a worker.",
      unit: "short",
      queries: { "{{status}}": gauge("sagas_open", "status"), stuck: gauge("sagas_stuck") },
    },
    {
      title: "Steps by Status",
      description: "Completed, failed, compensated.",
      unit: "cps",
      queries: { "{{step}} {{status}}": `sum by (step, status) (${rate("saga_steps_total")})` },
    },
    {
      title: "Step Duration (p50, p95, p99)",
      description: "From the beginning of a step to its success.",
      unit: "s",
      queries: quantiles("saga_step_duration_seconds", "step"),
    },
  ],
};
