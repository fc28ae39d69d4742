import { gauge, of, rate, type Dashboard } from "./panel.ts";

export const deadLetters: Dashboard = {
  uid: "sagabox-dead-letters",
  title: "Saga Dead Letters",
  description: "What was given up and waits for a person.",
  panels: [
    {
      title: "Open Dead Letters",
      description: "Dead letters that are not resolved.",
      unit: "short",
      queries: { "{{job}}": gauge("dead_letters") },
    },
    {
      title: "New Dead Letters by Reason",
      description: "Where they died and why.",
      unit: "cps",
      queries: { "{{origin}} {{reason}}": `sum by (origin, reason) (${rate("dead_letters_total")})` },
    },
    {
      title: "Dead Letters by Event Type",
      description: "Since the processes began.",
      unit: "short",
      queries: { "{{event_type}}": `sum by (event_type) (${of("dead_letters_total")})` },
    },
    {
      title: "Notices",
      description: "Notices by outcome: sent, failed, dropped.",
      unit: "cps",
      queries: { "{{via}} {{outcome}}": `sum by (via, outcome) (${rate("dead_letter_notices_total")})` },
    },
  ],
};
