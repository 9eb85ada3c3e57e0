// Keeps and draws a rate over the whole time of a transfer.

const POINTS = 160

// Holds at most 160 points. When they are full, pairs are merged and each lasts twice as long.
export class RateHistory {
  constructor() {
    this.points = []
    this.seconds = 1 // what one point lasts
    this.sum = 0
    this.count = 0
  }

  // Takes the rate of one more second.
  add(rate) {
    this.sum += rate
    this.count += 1
    if (this.count < this.seconds) return
    this.points.push(this.sum / this.count)
    this.sum = this.count = 0
    if (this.points.length < POINTS) return
    this.points = this.points.filter((_, at) => at % 2 === 0).map((point, at) => (point + this.points[2 * at + 1]) / 2)
    this.seconds *= 2
  }
}

// Draws a history into a canvas, in the colours of its style.
export function draw(canvas, history) {
  const scale = devicePixelRatio || 1
  const { clientWidth: width, clientHeight: height } = canvas
  if (!width || !height) return
  if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale)
  if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale)
  const context = canvas.getContext('2d')
  const style = getComputedStyle(canvas)
  context.setTransform(scale, 0, 0, scale, 0, 0)
  context.clearRect(0, 0, width, height)
  const { points } = history
  if (points.length < 2) return
  const top = Math.max(...points, 1) * 1.1
  // A young history grows from the left; from 40 points on it fills the width.
  const step = width / Math.max(40, points.length - 1)
  const y = rate => height - 1 - (rate / top) * (height - 3)
  context.beginPath()
  points.forEach((rate, at) => (at ? context.lineTo(at * step, y(rate)) : context.moveTo(0, y(rate))))
  context.strokeStyle = style.color
  context.lineWidth = 1.5
  context.lineJoin = 'round'
  context.stroke()
  context.lineTo((points.length - 1) * step, height)
  context.lineTo(0, height)
  context.closePath()
  context.globalAlpha = 0.12
  context.fillStyle = style.color
  context.fill()
  context.globalAlpha = 1
}
