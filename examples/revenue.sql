-- thalweg run revenue.sql --available-now
-- A generator is the source here; WITH (source = 'files', path = 'in/*.parquet') would read yours.
CREATE STREAM purchases WATERMARK FOR ts AS ts - INTERVAL 2 SECONDS
WITH (source = 'generate', rows = 20000, rows_per_second = 1000, packs_per_user = 5);

-- Both queries read the stream once, and share their slices of five seconds.
CREATE QUERY revenue AS
SELECT gemPackID, sum(price) AS revenue, window.end AS until
FROM purchases GROUP BY gemPackID, window(ts, '5 seconds');

CREATE QUERY busiest AS
SELECT gemPackID, count(*) AS sold, window.end AS until
FROM purchases GROUP BY gemPackID, window(ts, '10 seconds', '5 seconds') ORDER BY sold DESC, gemPackID LIMIT 3;
