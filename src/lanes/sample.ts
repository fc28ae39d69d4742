/** Rows that were seen in a sample of a table. */
export interface Sample {
  readonly seen: number;
  /** Percentage of the table that was read. */
  readonly percent: number;
}

const TRUSTED_ROWS = 10;

/** Extrapolates a sample. Fewer than ten rows may be chance: they are counted, not multiplied. Pure. */
export function estimateRows({ seen, percent }: Sample): number {
  return percent >= 100 || seen < TRUSTED_ROWS ? seen : Math.round((seen * 100) / percent);
}
