import { quantile } from "../harness/statistics.ts";

export interface StepChange {
  readonly id: string;
  readonly step: string;
  readonly status: string;
}

/** How long steps take: from the commit that begins one to the commit that ends it. */
export class StepTimes {
  readonly #began = new Map<string, number>();
  readonly #tookMs: number[] = [];

  onChange({ id, step, status }: StepChange): void {
    const place = `${id} ${step}`;
    const nowMs = performance.now();
    if (status === "in_progress") this.#began.set(place, nowMs);
    const beganMs = this.#began.get(place);
    if (status === "completed" && beganMs !== undefined) this.#tookMs.push(nowMs - beganMs);
  }

  detail(kind: string): Readonly<Record<string, number>> {
    return {
      [`${kind} step alone p50, ms`]: quantile(this.#tookMs, 0.5),
      [`${kind} step alone p99, ms`]: quantile(this.#tookMs, 0.99),
    };
  }
}
